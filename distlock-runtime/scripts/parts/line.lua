-- The line of those who wait for a lock: a sorted set with two members for each of them, whose names end with
-- `<manager>:<value>`, with 32 characters for the manager. One with a `q` before that has the time of arrival for its
-- score, and one with an `s` has less than nothing: the time when it was last heard of. Who has not been heard of for a
-- while keeps its place, but is passed over.

-- For how many milliseconds a waiter may be silent, and a lock that was handed over can be claimed.
local PATIENCE, CLAIM = 1000, 1000

local function milliseconds()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The first who was heard of lately, or nothing.
local function first_live(line, now)
  local from = 0
  while true do
    local places = redis.call('ZRANGEBYSCORE', line, 0, '+inf', 'LIMIT', from, 16)
    for _, place in ipairs(places) do
      local member = string.sub(place, 2)
      local seen = redis.call('ZSCORE', line, 's' .. member)
      -- A clock that was set back makes no ghost immortal.
      if seen and math.abs(now + tonumber(seen)) <= PATIENCE then
        return member
      end
    end
    if #places < 16 then
      return nil
    end
    from = from + 16
  end
end

local function leave(line, member)
  return redis.call('ZREM', line, 'q' .. member, 's' .. member)
end

-- Tells the process of one in the line, which finds out by itself if that fails. In a cluster it listens on this node alone,
-- unless the node is too old to know of such channels.
local function tell(lock, member, sharded)
  local manager, token = string.sub(member, 1, 32), string.sub(member, 34, 69)
  if sharded and type(redis.pcall('SPUBLISH', lock .. ':waiter:' .. manager, token)) == 'number' then
    return
  end
  redis.pcall('PUBLISH', string.match(lock, '^[^{]*') .. 'waiter:' .. manager, token)
end

-- Gives the lock to one in the line for the time that it has to claim it, and tells its process. Says whether it was given:
-- out of memory, say, nothing can be set.
local function hand_over(lock, member, sharded)
  local set = redis.pcall('SET', lock, string.sub(member, 34), 'PX', CLAIM)
  if type(set) == 'table' and set.err then
    return false
  end
  tell(lock, member, sharded)
  return true
end
