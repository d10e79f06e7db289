-- ARGV[2] is {from, most}: kinds of work in the order of their names. Answers for each {kind, field, value, ...}.
local C = cmsgpack.unpack(ARGV[2])
local kinds = call('ZRANGE', P .. 'dk', 0, -1)
table.sort(kinds)
local out = {}
for i = C[1] + 1, math.min(C[1] + C[2], #kinds) do
  local row = call('HGETALL', P .. 'd:' .. kinds[i])
  table.insert(row, 1, kinds[i])
  out[#out + 1] = row
end
return {now, 0, out}
