-- Frees a lock that is still ours, and a place of ours in its line. If others wait, the first of them gets it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the line, by arrival
-- KEYS[3]  when each in the line was last heard of
-- ARGV[1]  our value: token and owner
-- ARGV[2]  our manager, of 32 characters, or '' if we never stood in the line
-- ARGV[3]  after how many milliseconds of silence a waiter is passed over
-- ARGV[4]  for how many milliseconds a lock that was handed over can be claimed
-- ARGV[5]  what the managers' channels begin with
--
-- Returns  1 if something was freed, 0 if nothing was ours

local left = 0
if ARGV[2] ~= '' then
  local member = ARGV[2] .. ':' .. ARGV[1]
  left = redis.call('ZREM', KEYS[2], member)
  redis.call('ZREM', KEYS[3], member)
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return left
end
-- A line always has an expiry. To ask so needs no right that a lock without a line doesn't.
if redis.call('PTTL', KEYS[2]) > 0 then
  local head = first_live(KEYS[2], KEYS[3], milliseconds(), tonumber(ARGV[3]))
  if head and hand_over(KEYS[1], head, ARGV[4], ARGV[5]) then
    return 1
  end
end
return redis.call('DEL', KEYS[1])
