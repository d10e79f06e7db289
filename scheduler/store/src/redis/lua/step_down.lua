-- Gives a maintenance duty up, where it is the owner's. ARGV: owner. Answers whether it was.
if redis.call('HGET', KEYS[1], 'o') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
