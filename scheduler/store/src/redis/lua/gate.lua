-- A connector's gate, `<prefix>g:{<connector>}`: who holds a place at the vendor, fleet-wide. KEYS[1] is a hash of job id to
-- `<mark>:<when>`. ARGV: now (0: the server's), limit, mark, ids. Answers how many of the ids, from the first, may start.
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local limit, mark = tonumber(ARGV[2]), ARGV[3]
local held = redis.call('HLEN', KEYS[1])
local out = {}
for i = 4, #ARGV do
  local was = redis.call('HGET', KEYS[1], ARGV[i])
  if was then
    -- Another claim is about to take this very job: it is that one's, unless it never came back.
    local when = tonumber(string.match(was, ':(%d+)$'))
    if now - when > 10000 then
      redis.call('HSET', KEYS[1], ARGV[i], mark .. ':' .. now)
      out[#out + 1] = ARGV[i]
    end
  elseif held < limit then
    redis.call('HSET', KEYS[1], ARGV[i], mark .. ':' .. now)
    held = held + 1
    out[#out + 1] = ARGV[i]
  end
end
return out
