-- ARGV[2] is {connector or '', text, tries, created, due, mark}: a chore of another store. The mark tells the same call, sent again.
local C = cmsgpack.unpack(ARGV[2])
if call('HGET', KEYS[1], 'loaded') == C[6] then return {now, 0} end
local id = string.format('%d', call('HINCRBY', KEYS[1], 'chore', 1) * A[3] + A[4])
call('HSET', KEYS[1], 'loaded', C[6])
call('HSET', P .. 'cd', id, cmsgpack.pack({0, C[3], '', C[4], C[1], C[2]}))
call('ZADD', P .. 'cz', C[5], id)
if C[1] ~= '' then call('HSETNX', P .. 'cc', C[1], id) end
told(C[5])
return {now, 0}
