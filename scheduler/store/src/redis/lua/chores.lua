-- ARGV[2] is {most, lease_ms}. Leases due chores: {id, fence, tries, created, text, ...}. A chore is due at its place in the
-- line, which under a lease is the lease's end.
local C = cmsgpack.unpack(ARGV[2])
local out = {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'cz', '-inf', now, 'LIMIT', 0, C[1])) do
  local c = call('HGET', P .. 'cd', id)
  if c then
    c = cmsgpack.unpack(c)
    local tries = c[2]
    c[1], c[2], c[3] = c[1] + 1, c[2] + 1, A[2]
    call('HSET', P .. 'cd', id, cmsgpack.pack(c))
    call('ZADD', P .. 'cz', now + C[2], id)
    if c[5] ~= '' and call('HGET', P .. 'cc', c[5]) == id then call('HDEL', P .. 'cc', c[5]) end
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = id, c[1], tries, c[4], c[6]
  else
    call('ZREM', P .. 'cz', id)
  end
end
return {now, 0, out}
