-- Takes several locks, or none of them. An earlier try may have taken them although its answer was lost.
--
-- KEYS[1..n]     the locks
-- KEYS[n+1..2n]  their last fencing tokens, if a token is to be minted
-- ARGV[1]        the ttl in milliseconds
-- ARGV[2]        1 to mint a fencing token, else 0
-- ARGV[3]        what it must be above
-- ARGV[4..n+3]   our values: token and owner
--
-- Returns  {1, the fencing token or ''} if the locks are ours now, else {0, the place from 0 on of one that is not, the
--          value that stands there or '' if it is no string, its remaining milliseconds or -1 for none}

-- include fence

local n = #ARGV - 3
for i = 1, n do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    return string.find(value.err, 'WRONGTYPE') and {0, i - 1, '', -1} or value
  end
  if value ~= false and value ~= ARGV[i + 3] then
    return {0, i - 1, value, redis.call('PTTL', KEYS[i])}
  end
end
local fence, bad = 0, nil
if ARGV[2] == '1' then
  fence, bad = next_fence_of_all(KEYS, n + 1, ARGV[3])
  if fence == nil then
    return no_fence(bad)
  end
end
local minted = ''
for i = 1, n do
  redis.call('SET', KEYS[i], ARGV[i + 3], 'PX', ARGV[1])
  if ARGV[2] == '1' then
    minted = mint(KEYS[n + i], fence, 1)
  end
end
return {1, minted}
