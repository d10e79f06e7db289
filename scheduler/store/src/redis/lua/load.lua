-- ARGV[2..]: a job of another store each, {id, rev, seq, state, slot, fence, kind, due, dies, prio, kills, conn, tenant, created,
-- head, body, fields, labels, finished, estimate, 1 where it is set aside}. One that is there already is left as it is: the same call, sent again.
for a = 2, #ARGV do
  local j = cmsgpack.unpack(ARGV[a])
  local id = j[1]
  if not load(id) then
    local m = {j[2], j[3], j[4], 0, j[6], '', 0, 0, j[7], j[8], j[9], j[10], j[11], j[12], j[13], '', '', j[14], #j[20] > 0 and 1 or 0, 0}
    put(P .. 'cs', m[CONN], true)
    slot(id, m, j[5])
    call('HINCRBY', P .. 'n', m[CONN] .. '|' .. m[STATE], 1)
    put(P .. 'js:' .. m[STATE], id, m[CREATED])
    if j[19] >= 0 then put(P .. 'fin', id, j[19]) end
    for i = 1, #j[18] do put(P .. 'lb:' .. j[18][i], id, m[CREATED]) end
    local z, score, at = stand(m)
    enter(id, m, z, score, at)
    local fields = j[17]
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = 'h', j[15], 'b', j[16]
    save_all(id, m, fields)
    if #j[20] > 0 then
      call('HSET', jkey(id), 'es', cmsgpack.pack(j[20]))
      if j[21] == 1 then reserve(id, m, j[20]) end
    end
  end
end
flush()
return {now, 0}
