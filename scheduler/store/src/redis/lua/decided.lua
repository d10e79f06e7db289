-- Ends what ARGV[1] began at KEYS[1], unless another has it by now.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
