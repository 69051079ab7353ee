-- Sets a value of the application's, unless a later holder has set it already.
--
-- KEYS[1]  the key of the value
-- KEYS[2]  the key of the fencing token that it was last set with
-- ARGV[1]  the value
-- ARGV[2]  the fencing token of who sets it
--
-- Returns  1 if it was set, 0 if it was set with a higher token before

local last = redis.call('GET', KEYS[2])
-- Up to 2^53 a number of Lua's is exact, and no token is above that.
if last and tonumber(last) > tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1
