-- Raises the last fencing token of a lock to one that another server has minted.
--
-- KEYS[1]  the lock, which stays as it is
-- KEYS[2]  its last fencing token
-- ARGV[1]  our value, which is not looked at
-- ARGV[2]  the token
--
-- Returns  1

local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if last == nil or last < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', 86400000)
end
return 1
