-- Takes a share of a lock: that of a reader, or one of its permits. An earlier try may have taken it although its answer was
-- lost.
--
-- KEYS[1]  the lock
-- KEYS[2]  its line
-- KEYS[3]  its mark
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the kind of share
-- ARGV[4]  for how many milliseconds to leave a mark if shares of another kind are in the way; 0 to take it back
--
-- Returns  {1, ''} if we have it now, else {0, who is in the way, for how many milliseconds yet or -1 for something that is no
--          lock, 1 if those are shares of another kind}

-- include shares
-- include line

local lock, line, mark = KEYS[1], KEYS[2], KEYS[3]
local value, ttl, kind, stay = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local now = milliseconds()
if not is_held_by(lock, kind, value, now) then
  local who, remaining, held = obstacle(lock, mark, kind, now)
  if who then
    return {0, who, remaining, leave_mark(mark, kind, value, stay, held)}
  end
  local head = redis.call('PTTL', line) ~= -2 and first_waiting(line, lock, now)
  if head then
    local _, waiting = kind_and_value(head)
    return {0, waiting .. ', which waits for it', PATIENCE, 0}
  end
end
join(lock, kind, value, ttl, now)
drop_mark(mark, kind, value)
return {1, ''}
