-- ARGV[2] is {job, path, ...}: remembers with the job which paths it holds, before it does.
local C = cmsgpack.unpack(ARGV[2])
local key = jkey(C[1])
if call('EXISTS', key) == 0 then return {now, 0, 0} end
local known = call('HGET', key, 'p')
known = known and cmsgpack.unpack(known) or {}
local has = {}
for _, path in ipairs(known) do has[path] = true end
for i = 2, #C do
  if not has[C[i]] then known[#known + 1] = C[i] end
end
call('HSET', key, 'p', cmsgpack.pack(known))
return {now, 0, 1}
