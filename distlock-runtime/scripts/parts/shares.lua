-- Shares of a lock: what each of its readers has, or each holder of one of its permits. They stand in a sorted set under the
-- name that has a string while somebody has the whole lock, so that neither is taken while the other is held. Its members are
-- `<kind>:<value>`, where the kind is `r` for a reader and `p<permits>` for a permit, with the millisecond in which they expire for
-- their score. For permits there are counters, too: `#<permits>`, with COUNTS and how many ask for so many for its score.
--
-- The kind of the whole lock is an empty text. Whoever can't have it while shares are held may leave a mark, `<kind>:<value>`, which
-- holds newcomers of other kinds back for as long as it stands.

local COUNTS = 1e15

local function milliseconds()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The answer to a question about a name, or nothing if it has a value of another type.
local function ask(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) ~= 'table' or not answer.err then
    return answer
  end
  if not string.find(answer.err, 'WRONGTYPE') then
    -- Once more, for an error that tells where it comes from.
    if command == 'GET' then
      redis.call('GET', name)
    elseif command == 'ZRANGE' then
      redis.call('ZRANGE', name, ...)
    end
    redis.call('ZSCORE', name, ...)
  end
  return nil
end

-- Counts shares of a kind in or out.
local function count(lock, kind, by)
  local permits = string.match(kind, '^p(%d+)$')
  if not permits then
    return
  end
  local counted = tonumber(redis.call('ZINCRBY', lock, by, '#' .. permits))
  if counted < COUNTS then
    counted = COUNTS + counted
    redis.call('ZADD', lock, counted, '#' .. permits)
  end
  if counted <= COUNTS then
    redis.call('ZREM', lock, '#' .. permits)
  end
end

local function purge(lock, now)
  local ghosts = redis.call('ZRANGEBYSCORE', lock, '-inf', now, 'LIMIT', 0, 512)
  redis.call('ZREM', lock, unpack(ghosts))
  for _, ghost in ipairs(ghosts) do
    count(lock, string.match(ghost, '^[^:]*'), -1)
  end
end

-- The share that expires first, and when. Those that have expired are removed. Nothing if there is none, and false if what
-- stands there is no set of shares.
local function first_share(lock, now)
  while true do
    local first = ask('ZRANGE', lock, 0, 0, 'WITHSCORES')
    if first == nil then
      return false
    end
    local share, expires = first[1], tonumber(first[2])
    if share == nil then
      return nil
    end
    if not string.find(share, '^[rp]%d*:%x%x%x%x%x%x%x%x%-') then
      if not string.find(share, '^#%d+$') or expires < COUNTS then
        return false
      end
      -- A counter without anything to count.
      redis.call('DEL', lock)
      return nil
    end
    if expires > now then
      return share, expires
    end
    purge(lock, now)
  end
end

local function name_of(share, others)
  local text = string.match(share, ':(.*)$')
  if others > 0 then
    text = text .. ' and ' .. others .. (others == 1 and ' other' or ' others')
  end
  return text
end

-- What keeps one more of a kind from joining those who have shares, of which one is the first to expire.
local function obstacle_of_shares(lock, kind, now, first, expires)
  if kind == 'r' and string.sub(first, 1, 1) == 'r' then
    return nil
  end
  local held, least, counters = 'r', nil, {}
  if string.sub(first, 1, 1) == 'p' then
    counters, least = redis.call('ZRANGEBYSCORE', lock, COUNTS, '+inf'), math.huge
    for _, counter in ipairs(counters) do
      least = math.min(least, tonumber(string.sub(counter, 2)) or 0)
    end
    held = 'p' .. least
  end
  local holders, wanted = redis.call('ZCARD', lock) - #counters, tonumber(string.match(kind, '^p(%d+)$'))
  if least and wanted then
    if holders < math.min(least, wanted) then
      return nil
    end
    return name_of(first, holders - 1), expires - now, held
  end
  local at = -1 - #counters
  local last = redis.call('ZRANGE', lock, at, at, 'WITHSCORES')
  return name_of(last[1], holders - 1), tonumber(last[2]) - now, held
end

-- What keeps one more of a kind from the lock: nothing; or who, for people, for how many milliseconds yet, and the kind of
-- the shares that are held, if that is it. What has -1 milliseconds is no lock of ours. Who takes the whole lock need not mind
-- a mark.
local function obstacle(lock, mark, kind, now)
  local whole, first, expires = nil, nil, nil
  if kind == '' then
    whole = ask('GET', lock)
  end
  if whole == nil then
    first, expires = first_share(lock, now)
    if first == false then
      whole = ask('GET', lock)
      if not whole then
        return '', -1, ''
      end
    end
  end
  if whole then
    return whole, redis.call('PTTL', lock), ''
  end
  if first then
    local who, remaining, held = obstacle_of_shares(lock, kind, now, first, expires)
    if who then
      return who, remaining, held
    end
  end
  local wish = kind ~= '' and mark and redis.call('GET', mark)
  if wish and string.match(wish, '^([^:]*):') ~= kind then
    return name_of(wish, 0) .. ', which waits for it', math.max(redis.call('PTTL', mark), 0), ''
  end
  return nil
end

-- Leaves a mark for a while, if shares of another kind are in the way; or takes it back, if the time is none. Says whether
-- shares are in the way.
local function leave_mark(mark, kind, value, stay, held)
  if held == '' or held == kind then
    return 0
  end
  local ours, known = kind .. ':' .. value, redis.call('GET', mark)
  if stay == 0 then
    if known == ours then
      redis.call('DEL', mark)
    end
  elseif known == false or string.match(known, '^([^:]*):') == kind then
    if redis.call('PTTL', mark) < stay then
      -- Out of memory, say, nobody is held back.
      redis.pcall('SET', mark, ours, 'PX', stay)
    end
  end
  return 1
end

local function drop_mark(mark, kind, value)
  if redis.call('GET', mark) == kind .. ':' .. value then
    return redis.call('DEL', mark)
  end
  return 0
end

-- Whether the lock, or a share of it, is held by a value.
local function is_held_by(lock, kind, value, now)
  if kind == '' then
    return ask('GET', lock) == value
  end
  local expires = ask('ZSCORE', lock, kind .. ':' .. value)
  return expires and tonumber(expires) > now or false
end

-- Takes a share, or starts its expiry anew. A request that comes late does not shorten what a later one has got.
local function join(lock, kind, value, ttl, now)
  local share, left = kind .. ':' .. value, redis.call('PTTL', lock)
  -- Also if there is nothing yet: without the right to this it would never expire. And also if it lasts long enough: whoever
  -- waits for replicas waits for something that was written.
  redis.call('PEXPIRE', lock, math.max(left, ttl))
  local known = redis.call('ZSCORE', lock, share)
  if known == false then
    count(lock, kind, 1)
  end
  if known == false or tonumber(known) < now + ttl then
    redis.call('ZADD', lock, now + ttl, share)
  end
  if left < 0 then
    redis.call('PEXPIRE', lock, ttl)
  end
end

-- Takes the lock, or a share of it.
local function take(lock, kind, value, ttl, now)
  if kind ~= '' then
    join(lock, kind, value, ttl, now)
  elseif redis.call('PTTL', lock) < ttl then
    redis.call('SET', lock, value, 'PX', ttl)
  end
end

-- Gives a share back. The others last as long as before, and the set as long as they. Returns 1 if it had not expired.
local function part(lock, kind, value, now)
  local share = kind .. ':' .. value
  local expires = ask('ZSCORE', lock, share)
  if not expires then
    return 0
  end
  redis.call('ZREM', lock, share)
  local counters = 0
  if kind ~= 'r' then
    count(lock, kind, -1)
    counters = #redis.call('ZRANGEBYSCORE', lock, COUNTS, '+inf')
  end
  local last = redis.call('ZRANGE', lock, -1 - counters, -1 - counters, 'WITHSCORES')
  if last[2] and tonumber(last[2]) < tonumber(expires) then
    redis.call('PEXPIRE', lock, tonumber(last[2]) - now)
  end
  return tonumber(expires) > now and 1 or 0
end
