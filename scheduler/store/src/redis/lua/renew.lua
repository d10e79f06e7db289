-- ARGV[2] is {lease_ms, id, fence, id, fence, ...}.
local C = cmsgpack.unpack(ARGV[2])
local kept, ids = {}, {}
for i = 2, #C, 2 do ids[i / 2] = C[i] end
fetch(ids)
for i = 2, #C, 2 do
  local m = load(C[i])
  if m and m[OWNER] ~= '' and m[FENCE] == C[i + 1] then
    m[UNTIL] = now + C[1]
    if m[KIND] ~= 0 then
      if m[Z] ~= GOING then leave(C[i], m) end
      m[Z] = GOING
      put(zkey(GOING, m), C[i], m[UNTIL])
    end
    save(C[i], m)
    kept[#kept + 1] = 1
  else
    kept[#kept + 1] = 0
  end
end
flush()
return {now, 0, kept}
