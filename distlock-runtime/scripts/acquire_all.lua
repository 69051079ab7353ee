-- Takes several locks, or shares of them, or none. An earlier try may have taken them although its answer was lost.
--
-- KEYS[1..n]     the locks
-- KEYS[n+1..2n]  their last fencing tokens, if a token is to be minted
-- then n         their marks, for shares, and where shares may be in the way
-- then n         their lines, for shares
-- ARGV[1]        the ttl in milliseconds
-- ARGV[2]        1 to mint a fencing token, else 0
-- ARGV[3]        what it must be above
-- ARGV[4]        the kind of share, or an empty text for the whole locks
-- ARGV[5]        for how many milliseconds to leave a mark if shares of another kind are in the way; 0 to take it back
-- ARGV[6..n+5]   our values: token and owner
--
-- Returns  {1, the fencing token or ''} if the locks are ours now, else {0, the place from 0 on of one that is not, who is in
--          the way or '' if that is nobody, its remaining milliseconds or -1 for none, 1 if those are shares of another kind}

-- include fence
-- include shares
-- include line

local n, ttl, fenced, kind, stay = #ARGV - 5, tonumber(ARGV[1]), ARGV[2] == '1', ARGV[4], tonumber(ARGV[5])
local marks = fenced and 2 * n or n
local marked, now = #KEYS > marks, 0

-- Why one of the locks can't be had.
local function refusal(i)
  local lock, mark, value = KEYS[i], KEYS[marks + i], ARGV[i + 5]
  if kind == '' then
    local holder = ask('GET', lock)
    if holder == false or is_held_by(lock, kind, value, now) then
      return nil
    end
    if holder then
      return {0, i - 1, holder, redis.call('PTTL', lock), 0}
    end
  end
  now = milliseconds()
  if kind ~= '' and is_held_by(lock, kind, value, now) then
    return nil
  end
  local who, remaining, held = obstacle(lock, marked and mark or nil, kind, value, now)
  if who then
    return {0, i - 1, who, remaining, is_by_others(held, kind) and 1 or 0}
  end
  local line = KEYS[marks + n + i]
  local queue = line and redis.call('PTTL', line) ~= -2 and not has_mark(mark, kind, value, now)
  local head = queue and first_waiting(line, lock, now)
  if head then
    local _, waiting = kind_and_value(head)
    return {0, i - 1, waiting .. ', which waits for it', PATIENCE, 0}
  end
  return nil
end

for i = 1, n do
  local refused = refusal(i)
  if refused then
    -- On all of them: one that is free now must not be taken by newcomers while the others are waited for.
    for j = 1, marked and n or 0 do
      if stay > 0 and refused[5] == 1 then
        set_mark(KEYS[marks + j], kind, ARGV[j + 5], stay, now)
      elseif stay == 0 then
        drop_mark(KEYS[marks + j], kind, ARGV[j + 5])
      end
    end
    return refused
  end
end
local fence, bad = 0, nil
if fenced then
  fence, bad = next_fence_of_all(KEYS, n + 1, 2 * n, ARGV[3])
  if fence == nil then
    return no_fence(bad)
  end
end
local minted = ''
for i = 1, n do
  if kind == '' then
    redis.call('SET', KEYS[i], ARGV[i + 5], 'PX', ttl)
  else
    join(KEYS[i], kind, ARGV[i + 5], ttl, now)
  end
  if marked then
    drop_mark(KEYS[marks + i], kind, ARGV[i + 5])
  end
  if fenced then
    minted = mint(KEYS[n + i], fence, 1)
  end
end
return {1, minted}
