-- Extends locks that are still ours, each for itself.
--
-- KEYS  the locks
-- ARGV  for each: our value (token and owner), and the ttl in milliseconds
--
-- Returns  for each 1 if it was extended, 0 if it is not ours

-- All are looked at before the first is extended, so that what is refused for one leaves none changed.
local ours = {}
for i, lock in ipairs(KEYS) do
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE') then
    -- That says nothing of who has the lock. Once more, for an error that tells where it comes from.
    redis.call('GET', lock)
  end
  -- What has a value of another type is none of ours. One of ours may have the sign that others wait.
  ours[i] = value == ARGV[2 * i - 1] or value == ARGV[2 * i - 1] .. '+'
end
local extended = {}
for i, lock in ipairs(KEYS) do
  extended[i] = ours[i] and redis.call('PEXPIRE', lock, ARGV[2 * i]) or 0
end
return extended
