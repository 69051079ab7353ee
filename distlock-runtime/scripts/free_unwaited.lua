-- Frees a lock that is still ours and that nobody waits for.
--
-- KEYS[1]  the lock
-- ARGV[1]  our value: token and owner
--
-- Returns  1 if it was freed, 0 if it is not ours, or others wait

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
