-- Leases jobs that were let through. ARGV[2] is {lease_ms, nonce, lost nonce, strides}, ARGV[3..] are ids.
local C = cmsgpack.unpack(ARGV[2])
forget(C[3])
local rows = {}
fetch(ids_from(3))
for a = 3, #ARGV do
  local id = ARGV[a]
  local m = load(id)
  if m and m[KIND] ~= 0 and (m[OWNER] == '' or m[UNTIL] <= now) and m[DUE] <= now then
    if m[Z] == FRESH then turns_took(m[CONN], m[TENANT], C[4][m[TENANT]] or 1000000) end
    meter(m[CONN], 1)
    give(id, m, C[1], rows)
  end
end
remember(C[2], rows)
-- Who waits was told of no lease that ends before the claim that asked.
if #rows > 0 then told(now + C[1]) end
flush()
return {now, 0, rows, {}}
