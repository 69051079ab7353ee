-- Shares of a lock: what each of its readers has, or each holder of one of its permits. They stand in a sorted set under the
-- name that has a string while somebody has the whole lock, so that neither is taken while the other is held. Its members are
-- `<kind>:<value>`, where the kind is `r` for a reader and `p<permits>` for a permit, with the millisecond in which they expire for
-- their score. For permits there are counters, too: `#<permits>`, with COUNTS and how many ask for so many for its score.
--
-- The kind of the whole lock is an empty text. Whoever can't have it while shares are held may leave a mark: a member
-- `<kind>:<value>` of another sorted set, with the millisecond in which it ends. It holds newcomers of other kinds back until
-- then.

-- What is added to the value of one who has the whole lock and has not waited while others stand in the line, so that who gives
-- it back need not look for a line. A value that ends with a slash says that its holder knows of that.
local WAITED = '+'

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
    elseif command == 'ZRANGEBYSCORE' then
      redis.call('ZRANGEBYSCORE', name, ...)
    elseif command == 'ZREM' then
      redis.call('ZREM', name, ...)
    end
    redis.call('ZSCORE', name, ...)
  end
  return nil
end

-- The counter of a kind of share, and its score where so many more ask for that number of permits. Nothing for readers.
local function counter(lock, kind, more)
  local permits = string.match(kind, '^p(%d+)$')
  if not permits then
    return nil
  end
  local name = '#' .. permits
  return name, (tonumber(redis.call('ZSCORE', lock, name)) or COUNTS) + more
end

-- Removes shares of one kind. To remove comes first: out of memory, nothing may be added before that.
local function remove(lock, kind, shares)
  local name, left = counter(lock, kind, -#shares)
  if name and left <= COUNTS then
    table.insert(shares, name)
  end
  redis.call('ZREM', lock, unpack(shares))
  if name and left > COUNTS then
    redis.call('ZADD', lock, left, name)
  end
end

-- Has a name expire that was just written. Without the right to that, what is new must not be left behind for ever.
local function expire(name, new, ttl)
  local set = redis.pcall('PEXPIRE', name, ttl)
  if type(set) == 'table' then
    if new then
      redis.call('DEL', name)
    end
    redis.call('PEXPIRE', name, ttl)
  end
end

-- Removes shares that have expired.
local function purge(lock, now)
  local kinds = {}
  for _, ghost in ipairs(redis.call('ZRANGEBYSCORE', lock, '-inf', now, 'LIMIT', 0, 512)) do
    local kind = string.match(ghost, '^[^:]*')
    kinds[kind] = kinds[kind] or {}
    table.insert(kinds[kind], ghost)
  end
  for kind, ghosts in pairs(kinds) do
    remove(lock, kind, ghosts)
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
  local text = string.match(share, ':(.-)/?$')
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
    local who = name_of(first, holders - 1)
    if least < wanted then
      who = who .. (holders == 1 and ', who' or ', of whom one') .. ' asked for permits = ' .. least
    end
    return who, expires - now, held
  end
  local at = -1 - #counters
  local last = redis.call('ZRANGE', lock, at, at, 'WITHSCORES')
  return name_of(last[1], holders - 1), tonumber(last[2]) - now, held
end

-- Who holds newcomers of a kind back by a mark, and for how many milliseconds yet. Nothing if nobody does.
local function mark_of_others(mark, kind, now)
  local marks = ask('ZRANGEBYSCORE', mark, now + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 256) or {}
  for i = #marks - 1, 1, -2 do
    local whose = string.match(marks[i], '^([rp]?%d*):%x%x%x%x%x%x%x%x%-')
    if whose and whose ~= kind then
      return marks[i], tonumber(marks[i + 1]) - now
    end
  end
  return nil
end

local function has_mark(mark, kind, value, now)
  local ends = ask('ZSCORE', mark, kind .. ':' .. value)
  return ends and tonumber(ends) > now or false
end

-- Leaves a mark for so many milliseconds. What is no set of marks stays as it is; and out of memory, say, nobody is held back.
local function set_mark(mark, kind, value, stay, now)
  local over = ask('ZRANGEBYSCORE', mark, '-inf', now, 'LIMIT', 0, 64)
  if not over then
    return
  end
  if #over > 0 then
    redis.call('ZREM', mark, unpack(over))
  end
  local left = redis.call('PTTL', mark)
  local added = redis.pcall('ZADD', mark, now + stay, kind .. ':' .. value)
  if type(added) ~= 'table' then
    expire(mark, left == -2, math.max(left, stay))
  end
end

local function drop_mark(mark, kind, value)
  ask('ZREM', mark, kind .. ':' .. value)
end

-- Whether shares of another kind are what is in the way.
local function is_by_others(held, kind)
  return held ~= '' and held ~= kind
end

-- What keeps one more of a kind from the lock: nothing; or who, for people, for how many milliseconds yet, and the kind of
-- the shares that are held, if that is it. What has -1 milliseconds is no lock of ours. Who takes the whole lock need not mind
-- a mark, nor a value that has one: two that come back would hold each other back for nothing. Who waits in line has no value
-- here, and lets them go first.
local function obstacle(lock, mark, kind, value, now)
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
  if kind ~= '' and mark then
    local whose, left = mark_of_others(mark, kind, now)
    if whose and not (value and has_mark(mark, kind, value, now)) then
      return name_of(whose, 0) .. ', which waits for it', left, ''
    end
  end
  return nil
end

-- Whether the lock, or a share of it, is held by a value: with the sign that others wait, or without.
local function is_held_by(lock, kind, value, now)
  if kind == '' then
    local held = ask('GET', lock)
    return held == value or held == value .. WAITED
  end
  local expires = ask('ZSCORE', lock, kind .. ':' .. value)
  return expires and tonumber(expires) > now or false
end

-- Takes a share, or starts its expiry anew. The expiry of the lock is set in any case: whoever waits for replicas waits for
-- something that was written.
local function join(lock, kind, value, ttl, now)
  local share, left = kind .. ':' .. value, redis.call('PTTL', lock)
  local name, count = nil, nil
  if redis.call('ZSCORE', lock, share) == false then
    name, count = counter(lock, kind, 1)
  end
  if name then
    redis.call('ZADD', lock, now + ttl, share, count, name)
  else
    redis.call('ZADD', lock, now + ttl, share)
  end
  expire(lock, left == -2, math.max(left, ttl))
end

-- Takes the lock, or a share of it.
local function take(lock, kind, value, ttl, now)
  if kind ~= '' then
    join(lock, kind, value, ttl, now)
  elseif redis.call('PTTL', lock) < ttl then
    redis.call('SET', lock, value, 'PX', ttl)
  end
end

-- Gives a share back. The others last as long as before, and the set as long as they. Returns 1 if it had not expired. What is
-- asked is asked first: of a set that is empty, and so gone, a cluster that is moving it elsewhere has no answer.
local function part(lock, kind, value, now)
  local share = kind .. ':' .. value
  local expires = tonumber(ask('ZSCORE', lock, share))
  if not expires then
    return 0
  end
  local counters = 0
  if kind ~= 'r' then
    counters = #redis.call('ZRANGEBYSCORE', lock, COUNTS, '+inf')
  end
  local lasting = redis.call('ZRANGE', lock, -2 - counters, -1 - counters, 'WITHSCORES')
  local last = lasting[3] or lasting[1]
  if not lasting[3] then
    redis.call('DEL', lock)
  else
    remove(lock, kind, {share})
    if last == share then
      redis.call('PEXPIRE', lock, tonumber(lasting[2]) - now)
    end
  end
  return expires > now and 1 or 0
end
