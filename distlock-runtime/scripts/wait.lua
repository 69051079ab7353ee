-- Takes a lock whose turn is ours, or takes a place in the line, or keeps it by a sign of life. It may be repeated.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fencing token
-- KEYS[3]  its line
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  how many fencing tokens to mint
-- ARGV[4]  what they must be above
-- ARGV[5]  our manager, of 32 characters
-- ARGV[6]  after how many milliseconds of silence a waiter is forgotten
-- ARGV[7]  in a cluster `sharded`: waiters listen on this node alone
--
-- Returns  {1, the first fencing token or '', how many others wait} if the lock is ours now, else {0, the value that
--          stands there, its remaining milliseconds or -1 for none, 1 if we are the first in line}

-- include fence
-- include line

local lock, fences, line = KEYS[1], KEYS[2], KEYS[3]
local value, count, forget = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6])
local member = ARGV[5] .. ':' .. value
local now = milliseconds()
local holder = redis.call('GET', lock)
local remaining = redis.call('PTTL', lock)
if holder ~= false and remaining == -1 then
  return {0, holder, -1, 0}
end
local fence = ''
if count > 0 then
  fence = next_fence(fences, ARGV[4])
  if fence == nil then
    return no_fence(fences)
  end
end

local head = nil
if holder ~= value then
  if redis.call('ZSCORE', line, 'q' .. member) == false then
    -- Who comes later stands behind, whatever the clock does.
    local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
    redis.call('ZADD', line, math.max(now, (tonumber(last[2]) or 0) + 1), 'q' .. member)
  end
  redis.call('ZADD', line, -now, 's' .. member)
  redis.call('PEXPIRE', line, forget)
  for _, ghost in ipairs(redis.call('ZRANGEBYSCORE', line, forget - now, -1, 'LIMIT', 0, 64)) do
    leave(line, string.sub(ghost, 2))
  end
  head = first_live(line, now)
end

if holder == value or (holder == false and head == member) then
  -- Before the lock is set: without the right to these it would be left behind. To leave comes after the count: a line that is
  -- empty is gone, and a cluster that is moving it elsewhere has no answer about it then.
  local standing = redis.call('ZCARD', line)
  local others = standing - leave(line, member)
  -- A request that comes late must not shorten what a later one has got.
  if remaining < tonumber(ARGV[2]) then
    redis.call('SET', lock, value, 'PX', ARGV[2])
  end
  if count > 0 then
    fence = mint(fences, fence, count)
  end
  return {1, fence, others}
end
if holder == false then
  hand_over(lock, head, ARGV[7])
  holder, remaining = string.sub(head, 34), CLAIM
end
return {0, holder, remaining, head == member and 1 or 0}
