-- Sets a connector's circuits after those of the revision before. KEYS[1] holds what is kept of connectors. ARGV: field, revision,
-- text. Answers 1 where they stand; sent twice they stand already.
local was = redis.call('HGET', KEYS[1], ARGV[1])
if was == ARGV[3] then return 1 end
local rev = was and cjson.decode(was).rev or 0
if rev + 1 ~= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
