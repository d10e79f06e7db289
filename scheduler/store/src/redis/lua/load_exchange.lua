-- ARGV[2] is {job, number, about, fingerprint, since when it waits to be moved}, `about` and ARGV[3], its packed text, being
-- what commit.lua writes: an exchange of another store, after those before it. Answers 0 where its job is not there.
local C = cmsgpack.unpack(ARGV[2])
local key = jkey(C[1])
if call('EXISTS', key) == 0 then return {now, 0, 0} end
local x = call('HGET', key, 'x')
x = x and cmsgpack.unpack(x) or {0, '', 0, 0, 17, 2, 0}
if C[2] > x[1] then
  x[1], x[2], x[3], x[4] = C[2], C[4], x[3] + 1, x[4] + #ARGV[3]
  call('HSET', key, 'x', cmsgpack.pack(x), 'x' .. C[2], cmsgpack.pack(C[3]), 'y' .. C[2], ARGV[3])
  call('HINCRBY', KEYS[1], 'xb', #ARGV[3])
  call('ZADD', P .. 'xq', 'NX', C[5], C[1])
end
return {now, 0, 1}
