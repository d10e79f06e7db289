-- ARGV[2] is {id, fence, again_ms (-1: it is done)}. Ends a chore or makes it due again; 0 where the lease was another's.
local C = cmsgpack.unpack(ARGV[2])
local id = C[1]
local c = call('HGET', P .. 'cd', id)
if not c then return {now, 0, 0} end
c = cmsgpack.unpack(c)
if c[1] ~= C[2] or c[3] == '' then return {now, 0, 0} end
if C[3] < 0 then
  call('HDEL', P .. 'cd', id)
  call('ZREM', P .. 'cz', id)
else
  c[3] = ''
  call('HSET', P .. 'cd', id, cmsgpack.pack(c))
  call('ZADD', P .. 'cz', now + C[3], id)
  if c[5] ~= '' then call('HSETNX', P .. 'cc', c[5], id) end
  told(now + C[3])
  done()
end
return {now, woke, 1}
