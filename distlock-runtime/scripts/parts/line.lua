-- The line of those who wait for a lock: a sorted set with two members for each of them, whose names end with
-- `<manager><kind>:<value>`, with 32 characters for the manager. One with a `q` before that has the time of arrival for its
-- score, and one with an `s` has less than nothing: the time when it was last heard of. Who has not been heard of for a
-- while keeps its place, but is passed over.

-- For how many milliseconds a waiter may be silent, and a lock that was handed over can be claimed.
local PATIENCE, CLAIM = 1000, 1000

-- How many readers, or holders of permits, get a lock in one go. What they leave goes on when they claim it.
local MOST = 64

-- Shows all who were heard of lately to a function, from the first on, until it says that it has seen enough.
local function each_live(line, now, enough)
  local from = 0
  while true do
    local places = redis.call('ZRANGEBYSCORE', line, 0, '+inf', 'LIMIT', from, 16)
    for _, place in ipairs(places) do
      local member = string.sub(place, 2)
      local seen = redis.call('ZSCORE', line, 's' .. member)
      -- A clock that was set back makes no ghost immortal.
      if seen and math.abs(now + tonumber(seen)) <= PATIENCE and enough(member) then
        return
      end
    end
    if #places < 16 then
      return
    end
    from = from + 16
  end
end

local function kind_and_value(member)
  return string.match(member, '^([^:]*):(.*)$', 33)
end

-- The first who has not been given the lock, or nothing.
local function first_waiting(line, lock, now)
  local first = nil
  each_live(line, now, function(member)
    local kind, value = kind_and_value(member)
    if kind == '' or not is_held_by(lock, kind, value, now) then
      first = member
    end
    return first ~= nil
  end)
  return first
end

local function leave(line, member)
  return redis.call('ZREM', line, 'q' .. member, 's' .. member)
end

-- Lets the value of one who has the whole lock say that others wait, if its holder looks for that.
local function sign(lock)
  local held = ask('GET', lock)
  if held and string.find(held, '^%x%x%x%x%x%x%x%x%-[%x%-]+/.*/$') then
    redis.pcall('SET', lock, held .. WAITED, 'KEEPTTL')
  end
end

-- Tells the process of one in the line, which finds out by itself if that fails. In a cluster it listens on this node alone,
-- unless the node is too old to know of such channels.
local function tell(lock, member, sharded)
  local manager, token = string.sub(member, 1, 32), string.match(member, ':([^/]*)', 33)
  if sharded ~= '' and type(redis.pcall('SPUBLISH', lock .. ':waiter:' .. manager, token)) == 'number' then
    return
  end
  redis.pcall('PUBLISH', string.match(lock, '^[^{]*') .. 'waiter:' .. manager, token)
end

-- Gives the lock to those at the head of the line who can have it, for the time that they have to claim it, and tells their
-- processes. If it is shared by then, the next one holds newcomers back. Nothing is given where that fails: out of memory, say.
local function hand_on(lock, line, mark, now, sharded)
  local given = 0
  each_live(line, now, function(member)
    local kind, value = kind_and_value(member)
    if is_held_by(lock, kind, value, now) then
      return kind == ''
    end
    local who, _, held = obstacle(lock, mark, kind, nil, now)
    if who then
      if is_by_others(held, kind) then
        set_mark(mark, kind, value, PATIENCE, now)
      end
      return true
    end
    take(lock, kind, value, CLAIM, now)
    tell(lock, member, sharded)
    given = given + 1
    return kind == '' or given == MOST
  end)
end
