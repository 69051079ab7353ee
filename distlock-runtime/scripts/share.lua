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

local lock, line, mark = KEYS[1], KEYS[2], KEYS[3]
local value, ttl, kind, stay = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- include shares

local now = milliseconds()
local stand = redis.call('EXISTS', lock, line, mark)
if stand == 0 then
  -- Without the right to this it would never expire, so that is found out first.
  redis.call('PEXPIRE', lock, ttl)
  local permits = string.match(kind, '^p(%d+)$')
  if permits then
    redis.call('ZADD', lock, now + ttl, kind .. ':' .. value, COUNTS + 1, '#' .. permits)
  else
    redis.call('ZADD', lock, now + ttl, kind .. ':' .. value)
  end
  redis.call('PEXPIRE', lock, ttl)
  return {1, ''}
end

-- include line

local who, remaining, held = obstacle(lock, mark, kind, now)
if not who and redis.call('PTTL', line) ~= -2 then
  local head = first_waiting(line, lock, now)
  if head then
    local _, waiting = kind_and_value(head)
    who, remaining, held = waiting .. ', which waits for it', PATIENCE, ''
  end
end
if who and not is_held_by(lock, kind, value, now) then
  return {0, who, remaining, leave_mark(mark, kind, value, stay, held)}
end
join(lock, kind, value, ttl, now)
drop_mark(mark, kind, value)
return {1, ''}
