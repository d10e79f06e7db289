-- Gives places back. ARGV: mark ('': whoever's), ids. Answers how many were held.
local gone = 0
for i = 2, #ARGV do
  local was = redis.call('HGET', KEYS[1], ARGV[i])
  if was and (ARGV[1] == '' or string.sub(was, 1, #ARGV[1] + 1) == ARGV[1] .. ':') then
    redis.call('HDEL', KEYS[1], ARGV[i])
    gone = gone + 1
  end
end
return gone
