-- ARGV[2] is {ended before, id, labels, ...}: removes those jobs that are final and ended before that time. Answers the ids.
local C = cmsgpack.unpack(ARGV[2])
local gone = {}
for i = 2, #C, 2 do
  local id = C[i]
  local ended = call('ZSCORE', P .. 'fin', id)
  local m = ended and tonumber(ended) < C[1] and load(id)
  if m then
    leave(id, m)
    slot(id, m, 0)
    reserve(id, m, {})
    call('HINCRBY', P .. 'n', m[CONN] .. '|' .. m[STATE], -1)
    call('ZREM', P .. 'js:' .. m[STATE], id)
    call('ZREM', P .. 'fin', id)
    for _, label in ipairs(C[i + 1]) do call('ZREM', P .. 'lb:' .. label, id) end
    call('HDEL', P .. 'm', id)
    local x = call('HMGET', jkey(id), 'x', 'zs')
    if x[1] then note('xb', (number_of('xb') or 0) - cmsgpack.unpack(x[1])[4]) end
    for segment, many in pairs(x[2] and cmsgpack.unpack(x[2]) or {}) do unpoint(segment, many) end
    take(P .. 'xq', id)
    call('UNLINK', jkey(id))
    gone[#gone + 1] = id
  end
end
flush()
return {now, 0, gone}
