-- A path. ARGV: job, holder that is known to be gone ('': none). Answers who holds it.
local was = redis.call('GET', KEYS[1])
if was and was ~= ARGV[2] then return was end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
