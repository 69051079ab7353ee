-- Extends a lock that is still ours.
--
-- KEYS[1]  the lock
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
--
-- Returns  1 if the lock was extended, 0 if it is not ours

local held = redis.call('GET', KEYS[1])
-- With the sign that others wait, or without.
if held == ARGV[1] or held == ARGV[1] .. '+' then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
