-- Extends locks that are still ours, each for itself.
--
-- KEYS  the locks
-- ARGV  for each: our value (token and owner), and the ttl in milliseconds
--
-- Returns  for each 1 if it was extended, 0 if it is not ours

local extended = {}
for i, lock in ipairs(KEYS) do
  extended[i] = 0
  -- What has a value of another type is none of ours.
  if redis.pcall('GET', lock) == ARGV[2 * i - 1] then
    extended[i] = redis.call('PEXPIRE', lock, ARGV[2 * i])
  end
end
return extended
