-- Fencing tokens: each is above every earlier one of its lock. The server's clock is what makes up for a last one that was
-- forgotten: expired, deleted, or lost in a restart or a failover.

-- The next token, above the last one and `above`, or nothing if the helper key holds something else.
local function next_fence(name, above)
  local last = redis.call('GET', name)
  if last == false then
    last = 0
  else
    last = tonumber(last)
    -- Up to 2^53 a number of Lua's is exact.
    if last == nil or last ~= math.floor(last) or last < 0 or last > 9007199254000000 then
      return nil
    end
  end
  local time = redis.call('TIME')
  return math.max(last + 1, tonumber(above) + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
end

-- Hands out `count` tokens from `first` on. They are remembered for a day.
local function mint(name, first, count)
  redis.call('SET', name, string.format('%.0f', first + count - 1), 'PX', 86400000)
  return string.format('%.0f', first)
end

-- The next token of several locks, whose helper keys are names[from] to names[to]; or nothing, and the helper key that holds
-- something else.
local function next_fence_of_all(names, from, to, above)
  local highest = 0
  for i = from, to do
    local next = next_fence(names[i], above)
    if next == nil then
      return nil, names[i]
    end
    highest = math.max(highest, next)
  end
  return highest
end

local function no_fence(name)
  return redis.error_reply('NOFENCE ' .. name)
end
