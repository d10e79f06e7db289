-- Leases one job and answers its row. Needs common.lua; shared by claim and take.
local function give(id, m, lease_ms, rows)
  local took_over = m[OWNER] ~= ''
  if took_over then
    m[KILLS] = m[KILLS] + 1
    m[REV] = m[REV] + 1
  end
  if m[KIND] == 1 and m[SLOT] == 0 then
    slot(id, m, 1)
    if m[PRICED] == 1 then reserve(id, m, cmsgpack.unpack(call('HGET', jkey(id), 'es'))) end
  end
  m[FENCE] = m[FENCE] + 1
  local mine = m[LAST] == A[2]
  m[OWNER], m[UNTIL], m[LAST] = A[2], now + lease_ms, A[2]
  if m[Z] ~= GOING then leave(id, m) end
  m[Z] = GOING
  put(zkey(GOING, m), id, m[UNTIL])
  save(id, m)
  local n = #rows
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4], rows[n + 5] = id, m[REV], m[FENCE], m[KILLS], m[SEQ]
  if mine then
    rows[n + 6], rows[n + 7] = '', ''
  else
    local hb = call('HMGET', jkey(id), 'h', 'b')
    rows[n + 6], rows[n + 7] = with_quiet(hb[1], m), hb[2]
  end
end
-- Remembers what this claim gave, so that a worker whose answer was lost can hand it back.
local function remember(nonce, rows)
  local given = {}
  for i = 1, #rows, 7 do
    given[#given + 1] = rows[i]
    given[#given + 1] = rows[i + 2]
  end
  call('HSET', P .. 'cl', A[2], cmsgpack.pack({nonce, given}))
end
local function hand_back(id, fence)
  local m = load(id)
  if not m or m[OWNER] == '' or m[FENCE] ~= fence then return nil end
  local freed = m[KIND] == 1 and slot(id, m, 0)
  if freed then reserve(id, m, {}) end
  unlease(id, m)
  save(id, m)
  return freed and m[CONN]
end
local function forget(nonce)
  if nonce == '' then return end
  local last = call('HGET', P .. 'cl', A[2])
  if not last then return end
  last = cmsgpack.unpack(last)
  if last[1] ~= nonce then return end
  for i = 1, #last[2], 2 do hand_back(last[2][i], last[2][i + 1]) end
  call('HDEL', P .. 'cl', A[2])
end
