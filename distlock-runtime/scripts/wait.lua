-- Takes a lock, or a share of it, whose turn is ours, or takes a place in the line, or keeps it by a sign of life. It may be
-- repeated.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fencing token
-- KEYS[3]  its line
-- KEYS[4]  its marks
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  how many fencing tokens to mint
-- ARGV[4]  what they must be above
-- ARGV[5]  our manager, of 32 characters
-- ARGV[6]  after how many milliseconds of silence a waiter is forgotten
-- ARGV[7]  the kind of share, or an empty text for the whole lock
-- ARGV[8]  in a cluster `sharded`: waiters listen on this node alone; else nothing
--
-- Returns  {1, the first fencing token or '', how many others wait} if it is ours now, else {0, who is in the way, for how many
--          milliseconds yet or -1 for something that is no lock, 1 if we are the first in line, 1 if those in the way have
--          shares of another kind}

-- include fence
-- include shares
-- include line

local lock, fences, line, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local value, ttl, kind, sharded = ARGV[1], tonumber(ARGV[2]), ARGV[7], ARGV[8] or ''
local count, forget = tonumber(ARGV[3]), tonumber(ARGV[6])
local member = ARGV[5] .. kind .. ':' .. value
local now = milliseconds()
local who, remaining, held = obstacle(lock, mark, kind, nil, now)
if who and remaining == -1 then
  return {0, who, -1, 0, 0}
end
local fence = ''
if count > 0 then
  fence = next_fence(fences, ARGV[4])
  if fence == nil then
    return no_fence(fences)
  end
end

local ours, head = is_held_by(lock, kind, value, now), nil
if not ours then
  if redis.call('ZSCORE', line, 'q' .. member) == false then
    -- Who comes later stands behind, whatever the clock does.
    local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
    redis.call('ZADD', line, math.max(now, (tonumber(last[2]) or 0) + 1), 'q' .. member)
    expire(line, last[1] == nil, forget)
  end
  redis.call('ZADD', line, -now, 's' .. member)
  redis.call('PEXPIRE', line, forget)
  for _, ghost in ipairs(redis.call('ZRANGEBYSCORE', line, forget - now, -1, 'LIMIT', 0, 64)) do
    leave(line, string.sub(ghost, 2))
  end
  head = first_waiting(line, lock, now)
  if not who and head ~= member then
    pcall(hand_on, lock, line, mark, now, sharded)
    ours = is_held_by(lock, kind, value, now)
    who, remaining, held = obstacle(lock, mark, kind, nil, now)
  end
end

if ours or (not who and head == member) then
  -- Before the lock is set: without the right to these it would be left behind. To leave comes after the count: a line that is
  -- empty is gone, and a cluster that is moving it elsewhere has no answer about it then.
  local standing = redis.call('ZCARD', line)
  local others = standing - leave(line, member)
  drop_mark(mark, kind, value)
  take(lock, kind, value, ttl, now)
  if count > 0 then
    fence = mint(fences, fence, count)
  end
  if kind ~= '' and others > 0 then
    pcall(hand_on, lock, line, mark, now, sharded)
  end
  return {1, fence, others}
end
local first = head == member
local by_others = held and is_by_others(held, kind)
if first and by_others then
  set_mark(mark, kind, value, PATIENCE, now)
end
sign(lock)
if not who then
  local _, waiting = kind_and_value(head)
  who, remaining = waiting, CLAIM
end
return {0, who, remaining, first and 1 or 0, by_others and 1 or 0}
