-- ARGV[2] is {job, artifact, text}: an artifact of another store, after those before it. Answers 0 where its job is not there.
local C = cmsgpack.unpack(ARGV[2])
local key = jkey(C[1])
if call('EXISTS', key) == 0 then return {now, 0, 0} end
local known = call('HGET', key, 'al')
known = known and cmsgpack.unpack(known) or {}
for _, one in ipairs(known) do
  if one == C[2] then return {now, 0, 1} end
end
known[#known + 1] = C[2]
call('HSET', key, 'al', cmsgpack.pack(known), 'a:' .. C[2], C[3])
return {now, 0, 1}
