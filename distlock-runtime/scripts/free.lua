-- Frees a lock that is still ours, or a share of it, where no lines are kept, or where its line may be on another node of a
-- cluster.
--
-- KEYS[1]  the lock
-- ARGV[1]  our value: token and owner
-- ARGV[2]  the kind of share, or nothing for the whole lock
--
-- Returns  1 if it was freed, 0 if it was not ours

if ARGV[2] then
  -- include shares
  return part(KEYS[1], ARGV[2], ARGV[1], milliseconds())
end
local held = redis.call('GET', KEYS[1])
-- With the sign that others wait, or without.
if held == ARGV[1] or held == ARGV[1] .. '+' then
  return redis.call('DEL', KEYS[1])
end
return 0
