-- The line of those who wait for a lock, in the order of their arrival. A member is `<manager>:<value>`, with 32 characters
-- for the manager. Who has not been heard of for a while keeps its place, but is passed over.

local function milliseconds()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The first member that was heard of within `patience` milliseconds, or nothing.
local function first_live(line, seen, now, patience)
  local from = 0
  while true do
    local members = redis.call('ZRANGE', line, from, from + 15)
    for _, member in ipairs(members) do
      local at = redis.call('ZSCORE', seen, member)
      -- A clock that was set back makes no ghost immortal.
      if at and math.abs(now - tonumber(at)) <= patience then
        return member
      end
    end
    if #members < 16 then
      return nil
    end
    from = from + 16
  end
end

-- Gives the lock to a member for the time that it has to claim it, and tells its process, which finds out by itself if
-- that fails. Says whether it was given: out of memory, say, nothing can be set.
local function hand_over(lock, member, claim, channel)
  local set = redis.pcall('SET', lock, string.sub(member, 34), 'PX', claim)
  if type(set) == 'table' and set.err then
    return false
  end
  redis.pcall('PUBLISH', channel .. string.sub(member, 1, 32), string.sub(member, 34, 69))
  return true
end
