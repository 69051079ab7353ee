-- Frees a lock that is still ours, or a share of it, and a place of ours in its line. If others wait, those who can have it then
-- get it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its line
-- KEYS[3]  its marks
-- ARGV[1]  our value: token and owner
-- ARGV[2]  our manager, of 32 characters, if we may stand in the line; else nothing, or an empty text
-- ARGV[3]  the kind of share; for the whole lock nothing, or an empty text
-- ARGV[4]  1 if there may be a mark of ours; else nothing, or an empty text
-- ARGV[5]  in a cluster `sharded`: waiters listen on this node alone
--
-- Returns  1 if the lock was freed, 2 if only a place or a mark was given up, 0 if nothing was ours

local lock, line, mark = KEYS[1], KEYS[2], KEYS[3]
local value, manager, kind = ARGV[1], ARGV[2] or '', ARGV[3] or ''
-- To ask so needs no right that a lock without a line doesn't. What is no line of ours must not keep a lock from being freed.
local lined = redis.call('PTTL', line) ~= -2 and type(redis.pcall('ZCARD', line)) ~= 'table'
if kind == '' and not lined and ARGV[4] ~= '1' then
  local held = redis.call('GET', lock)
  if held == value or held == value .. '+' then
    return redis.call('DEL', lock)
  end
  return 0
end

-- include shares
-- include line

local now, left = milliseconds(), 0
if lined and manager ~= '' then
  left = leave(line, manager .. kind .. ':' .. value)
end
if ARGV[4] == '1' or manager ~= '' then
  if has_mark(mark, kind, value, now) then
    left = left + 1
  end
  drop_mark(mark, kind, value)
end
local freed = 0
if kind ~= '' then
  freed = part(lock, kind, value, now)
elseif is_held_by(lock, kind, value, now) then
  freed = redis.call('DEL', lock)
end
if lined and freed + left > 0 then
  -- Whatever becomes of that, it is freed.
  pcall(hand_on, lock, line, mark, now, ARGV[5] or '')
end
if freed == 1 then
  return 1
end
return left > 0 and 2 or 0
