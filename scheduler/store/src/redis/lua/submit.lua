-- ARGV[2..]: one job each, {id, state, kind, due, dies, prio, slot, conn, tenant, created, head, body, fields, events, labels,
-- ledger, finished, path, estimate, spend}. A job that is there already is left as it is: the same submit, sent again.
local out, jobs, ids = {}, {}, {}
for a = 2, #ARGV do
  jobs[a - 1] = cmsgpack.unpack(ARGV[a])
  ids[a - 1] = jobs[a - 1][1]
end
fetch(ids)
for _, j in ipairs(jobs) do
  local id = j[1]
  if load(id) then
    out[#out + 1] = 0
  else
    local m = {1, 0, j[2], 0, 0, '', 0, 0, j[3], j[4], j[5], j[6], 0, j[8], j[9], '', '', j[10], #j[19] > 0 and 1 or 0, 0}
    put(P .. 'cs', m[CONN], true)
    local fields = j[13]
    history(id, m, j[14], 0, fields)
    slot(id, m, j[7])
    move(m[CONN], m[STATE], 1)
    put(P .. 'js:' .. m[STATE], id, m[CREATED])
    if j[17] >= 0 then put(P .. 'fin', id, j[17]) end
    for i = 1, #j[15] do put(P .. 'lb:' .. j[15][i], id, m[CREATED]) end
    ledger(j[16])
    local z, score, at = stand(m)
    enter(id, m, z, score, at)
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = 'h', j[11], 'b', j[12]
    n = n + 4
    if #j[19] > 0 then
      fields[n + 1], fields[n + 2] = 'es', cmsgpack.pack(j[19])
      n = n + 2
    end
    if j[18] ~= '' then fields[n + 1], fields[n + 2] = 'p', cmsgpack.pack({j[18]}) end
    save_all(id, m, fields)
    if #j[19] > 0 and m[SLOT] == 1 then reserve(id, m, j[19]) end
    spend(j[20])
    tell(id, m)
    out[#out + 1] = 1
  end
end
done()
return {now, woke, out}
