-- ARGV[2] is {job, its lines as text, 1 where money is set aside for it, which, {{day, name, line, spend}, ...}}: lines of another
-- store's ledger, which outlive their job.
local C = cmsgpack.unpack(ARGV[2])
local id = C[1]
for _, line in ipairs(C[5]) do
  -- The same call, sent again, spends nothing again.
  if call('HEXISTS', P .. 'u:' .. line[1], line[2]) == 0 then spend(line[4]) end
  ledger({line[1], line[2], line[3]})
end
local m = load(id)
if m then
  call('HSET', jkey(id), 'u', C[2])
  if C[3] == 1 then
    reserve(id, m, C[4])
    save(id, m)
  end
end
flush()
return {now, 0}
