-- Removes an idempotency key that came at a time or before it. ARGV: the time. Answers 1 where it went: it may have been claimed
-- anew since it was looked at.
local at = redis.call('HGET', KEYS[1], 'at')
if at and tonumber(at) <= tonumber(ARGV[1]) then return redis.call('DEL', KEYS[1]) end
return 0
