-- An idempotency key. ARGV: now, life in ms, hash, job. Answers {hash, job, pruned head or ''} of who has it, or {} where it is
-- this job's from now on.
local now, life = tonumber(ARGV[1]), tonumber(ARGV[2])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local was = redis.call('HMGET', KEYS[1], 'hash', 'job', 'at', 'pruned')
if was[1] and tonumber(was[3]) > now - life then
  return {was[1], was[2], was[4] or ''}
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'hash', ARGV[3], 'job', ARGV[4], 'at', now)
redis.call('PEXPIRE', KEYS[1], life)
return {}
