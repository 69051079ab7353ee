-- Frees a lock that is still ours, and a place of ours in its line. If others wait, the first of them gets it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its line
-- ARGV[1]  our value: token and owner
-- ARGV[2]  our manager, of 32 characters, if we may stand in the line; else nothing, or an empty text
-- ARGV[3]  in a cluster `sharded`: waiters listen on this node alone
--
-- Returns  1 if something was freed, 0 if nothing was ours

local ours = redis.call('GET', KEYS[1]) == ARGV[1]
-- To ask so needs no right that a lock without a line doesn't. What is no line of ours must not keep a lock from being freed.
if redis.call('PTTL', KEYS[2]) == -2 or type(redis.pcall('ZCARD', KEYS[2])) == 'table' then
  return ours and redis.call('DEL', KEYS[1]) or 0
end

-- include line

local left = 0
if ARGV[2] and ARGV[2] ~= '' then
  left = leave(KEYS[2], ARGV[2] .. ':' .. ARGV[1])
end
if not ours then
  return math.min(left, 1)
end
local head = first_live(KEYS[2], milliseconds())
if head and hand_over(KEYS[1], head, ARGV[3]) then
  return 1
end
return redis.call('DEL', KEYS[1])
