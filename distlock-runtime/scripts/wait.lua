-- Takes a lock whose turn is ours, or takes a place in the line, or keeps it by a sign of life. It may be repeated.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fencing token
-- KEYS[3]  the line, by arrival
-- KEYS[4]  when each in the line was last heard of
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  how many fencing tokens to mint
-- ARGV[4]  what they must be above
-- ARGV[5]  our manager, of 32 characters
-- ARGV[6]  after how many milliseconds of silence a waiter is passed over
-- ARGV[7]  for how many milliseconds a lock that was handed over can be claimed
-- ARGV[8]  after how many milliseconds of silence a waiter is forgotten
-- ARGV[9]  what the managers' channels begin with
--
-- Returns  {1, the first fencing token or '', how many others wait} if the lock is ours now, else {0, the value that
--          stands there, its remaining milliseconds or -1 for none, 1 if we are the first in line}

local lock, fences, line, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local value, count = ARGV[1], tonumber(ARGV[3])
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
  -- Who comes later stands behind, whatever the clock does.
  if redis.call('ZSCORE', line, member) == false then
    local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
    redis.call('ZADD', line, math.max(now, (tonumber(last[2]) or 0) + 1), member)
  end
  redis.call('ZADD', seen, now, member)
  redis.call('PEXPIRE', line, ARGV[8])
  redis.call('PEXPIRE', seen, ARGV[8])
  for _, ghost in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now - tonumber(ARGV[8]), 'LIMIT', 0, 64)) do
    redis.call('ZREM', line, ghost)
    redis.call('ZREM', seen, ghost)
  end
  head = first_live(line, seen, now, tonumber(ARGV[6]))
end

if holder == value or (holder == false and head == member) then
  redis.call('SET', lock, value, 'PX', ARGV[2])
  redis.call('ZREM', line, member)
  redis.call('ZREM', seen, member)
  if count > 0 then
    fence = mint(fences, fence, count)
  end
  return {1, fence, redis.call('ZCARD', line)}
end
if holder == false then
  hand_over(lock, head, ARGV[7], ARGV[9])
  holder, remaining = string.sub(head, 34), tonumber(ARGV[7])
end
return {0, holder, remaining, head == member and 1 or 0}
