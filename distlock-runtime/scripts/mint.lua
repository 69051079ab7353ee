-- Mints a fencing token for locks that are held.
--
-- KEYS[1..n]     the locks
-- KEYS[n+1..2n]  their last fencing tokens
-- ARGV[1]        the ttl in milliseconds, which stays as it is
-- ARGV[2]        1
-- ARGV[3]        what the token must be above
-- ARGV[4..5]     what is of no matter here
-- ARGV[6..n+5]   our values: token and owner
--
-- Returns  the fencing token, or 0 if one of the locks is not ours

-- include fence

local n = #ARGV - 5
for i = 1, n do
  local holder = redis.pcall('GET', KEYS[i])
  if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE') then
    return holder
  end
  if holder ~= ARGV[i + 5] then
    return 0
  end
end
local fence, bad = next_fence_of_all(KEYS, n + 1, 2 * n, ARGV[3])
if fence == nil then
  return no_fence(bad)
end
local minted = 0
for i = n + 1, 2 * n do
  minted = mint(KEYS[i], fence, 1)
end
return minted
