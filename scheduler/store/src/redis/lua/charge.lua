-- Takes requests from a connector's bucket, KEYS[1], which may go below zero. ARGV: now (0: the server's), rate, requests.
local now, rate, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local PARTS, SLACK, DEBT = 60000000, 100, 60000
local was = redis.call('HMGET', KEYS[1], 'rl', 'ra')
local level, at = PARTS + rate * SLACK, now
if was[1] then
  at = tonumber(was[2])
  level = math.min(tonumber(was[1]) + math.max(now - at, 0) * rate, PARTS + rate * SLACK)
  at = math.max(now, at)
end
local deepest = math.min(-(rate * DEBT), level)
level = math.max(level - count * PARTS, deepest)
redis.call('HSET', KEYS[1], 'rl', string.format('%.0f', level), 'ra', string.format('%.0f', at))
return 1
