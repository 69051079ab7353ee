-- Extends a share of a lock that is still ours, and no other.
--
-- KEYS[1]  the lock
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the kind of share
--
-- Returns  1 if the share was extended, 0 if it is not ours

-- include shares

local now = milliseconds()
if not is_held_by(KEYS[1], ARGV[3], ARGV[1], now) then
  return 0
end
join(KEYS[1], ARGV[3], ARGV[1], tonumber(ARGV[2]), now)
return 1
