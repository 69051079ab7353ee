-- Takes a share of a lock: that of a reader, or one of its permits. An earlier try may have taken it although its answer was
-- lost.
--
-- KEYS[1]  the lock
-- KEYS[2]  its line
-- KEYS[3]  its marks
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the kind of share
-- ARGV[4]  for how many milliseconds to leave a mark if shares of another kind are in the way; 0 to take it back
-- ARGV[5]  the value of a reader beside whom we may join whoever waits, as we came with it; else nothing
--
-- Returns  {1, ''} if we have it now, else {0, who is in the way, for how many milliseconds yet or -1 for something that is no
--          lock, 1 if those are shares of another kind}

local lock, line, mark = KEYS[1], KEYS[2], KEYS[3]
local value, ttl, kind, stay = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- include shares

local now = milliseconds()
if redis.call('EXISTS', lock, line, mark) == 0 then
  local permits = string.match(kind, '^p(%d+)$')
  if permits then
    redis.call('ZADD', lock, now + ttl, kind .. ':' .. value, COUNTS + 1, '#' .. permits)
  else
    redis.call('ZADD', lock, now + ttl, kind .. ':' .. value)
  end
  expire(lock, true, ttl)
  return {1, ''}
end

-- include line

local who, remaining, held = nil, nil, nil
local comes_with = kind == 'r' and ARGV[5] and is_held_by(lock, kind, ARGV[5], now)
if not comes_with then
  who, remaining, held = obstacle(lock, mark, kind, value, now)
end
if not who and not comes_with and redis.call('PTTL', line) ~= -2 and not has_mark(mark, kind, value, now) then
  -- Whoever has a mark is what the line waits for.
  local head = first_waiting(line, lock, now)
  if head then
    local _, waiting = kind_and_value(head)
    who, remaining, held = waiting .. ', which waits for it', PATIENCE, ''
  end
end
if who and not is_held_by(lock, kind, value, now) then
  local by_others = is_by_others(held, kind)
  if by_others and stay > 0 then
    set_mark(mark, kind, value, stay, now)
  elseif stay == 0 then
    drop_mark(mark, kind, value)
  end
  return {0, who, remaining, by_others and 1 or 0}
end
join(lock, kind, value, ttl, now)
drop_mark(mark, kind, value)
return {1, ''}
