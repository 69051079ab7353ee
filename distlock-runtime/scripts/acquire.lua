-- Takes a lock by a try that is not the first: an earlier one may have set it although its answer was lost.
--
-- KEYS[1]  the lock
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
--
-- Returns  {1} if the lock is ours now, else {0, the value that stands there, its remaining milliseconds or -1 for none}

local value = redis.call('GET', KEYS[1])
if value == false then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {1}
end
if value == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1}
end
return {0, value, redis.call('PTTL', KEYS[1])}
