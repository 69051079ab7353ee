-- Takes a lock by a try that is not the first, as an earlier one may have set it although its answer was lost; or by one
-- that brings a fencing token; or where others have shares of it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its last fencing token
-- KEYS[3]  its marks, or nothing
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  how many fencing tokens to mint
-- ARGV[4]  what they must be above
-- ARGV[5]  for how many milliseconds to leave a mark if shares are in the way; 0 to take it back
--
-- Returns  {1, the first fencing token or ''} if the lock is ours now, else {0, who is in the way, its remaining
--          milliseconds or -1 for none, 1 if those are shares}

-- include fence

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  -- include shares
  local now, mark, stay = milliseconds(), KEYS[3], tonumber(ARGV[5])
  local who, remaining, held = obstacle(KEYS[1], nil, '', nil, now)
  if who and mark and held ~= '' and stay > 0 then
    set_mark(mark, '', ARGV[1], stay, now)
  elseif who and mark and stay == 0 then
    drop_mark(mark, '', ARGV[1])
  end
  if who then
    return {0, who, remaining, held == '' and 0 or 1}
  end
  value = false
end
-- With the sign that others wait, or without.
if value ~= false and value ~= ARGV[1] and value ~= ARGV[1] .. '+' then
  if KEYS[3] and ARGV[5] == '0' then
    redis.pcall('ZREM', KEYS[3], ':' .. ARGV[1])
  end
  return {0, value, redis.call('PTTL', KEYS[1]), 0}
end
local count, fence = tonumber(ARGV[3]), ''
if count > 0 then
  fence = next_fence(KEYS[2], ARGV[4])
  if fence == nil then
    return no_fence(KEYS[2])
  end
end
-- A request that comes late must not shorten what a later one has got.
if value == false or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], value or ARGV[1], 'PX', ARGV[2])
end
if KEYS[3] then
  -- What is no set of marks is left alone.
  redis.pcall('ZREM', KEYS[3], ':' .. ARGV[1])
end
if count > 0 then
  fence = mint(KEYS[2], fence, count)
end
return {1, fence}
