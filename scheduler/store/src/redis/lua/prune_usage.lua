-- ARGV[2] is {day, {job, line's name, ...}}: removes those lines of the ledger whose job is gone. Answers how many went.
local C = cmsgpack.unpack(ARGV[2])
local key = P .. 'u:' .. C[1]
local gone = 0
for i = 1, #C[2], 2 do
  if call('EXISTS', jkey(C[2][i])) == 0 then gone = gone + call('HDEL', key, C[2][i + 1]) end
end
if call('EXISTS', key) == 0 then call('SREM', P .. 'ld', C[1]) end
return {now, 0, gone}
