-- A maintenance duty, `<prefix>:d:<duty>`: a hash of its owner `o` and the end of the lease `u`. ARGV: now (0: the server's),
-- owner, lease_ms. Answers 1 where the duty is the owner's now. An end further off than a lease was written before the
-- server's clock was set back, and holds nobody off.
local now, owner, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local held = redis.call('HMGET', KEYS[1], 'o', 'u')
local left = tonumber(held[2] or 0) - now
if held[1] and held[1] ~= owner and left > 0 and left <= lease then return 0 end
redis.call('HSET', KEYS[1], 'o', owner, 'u', now + lease)
return 1
