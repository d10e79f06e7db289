-- ARGV[2] is {most, lease_ms, nonce, lost nonce, restricted, strides}: restricted says of a connector 0 nothing, 1 no
-- starts, 2 ask its gate first; strides are 1/weight of tenants with a weight.
-- Answers {now, woke, next due, rows, asked}: rows as lease.lua gives them; asked are those whose gate must be asked,
-- {id, connector, place in its line} flat.
local C = cmsgpack.unpack(ARGV[2])
local most, lease_ms = C[1], C[2]
local restricted, strides = C[5], C[6]
forget(C[4])
local hold = {}
local flat = call('HGETALL', P .. 'hold')
for i = 1, #flat, 2 do hold[flat[i]] = flat[i + 1] end
local function parked(conn) return hold[conn] == 'p' end
local function starts(conn)
  local h = hold[conn]
  if not h then return true end
  local kind = string.sub(h, 1, 1)
  return kind == 'c' and tonumber(string.sub(h, 3)) <= now
end
-- What became due in the meantime goes where it belongs.
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'l', '-inf', now, 'LIMIT', 0, 256)) do
  local m = load(id)
  if m then
    unlease(id, m)
    save(id, m)
  else
    call('ZREM', P .. 'l', id)
  end
end
local conns = call('SMEMBERS', P .. 'cs')
table.sort(conns)
local rows, asked, given = {}, {}, 0
local function pick(id, m, score)
  given = given + 1
  if restricted[m[CONN]] == 2 and m[KIND] == 1 then
    local n = #asked
    asked[n + 1], asked[n + 2], asked[n + 3] = id, m[CONN], score
    return
  end
  give(id, m, lease_ms, rows)
end
local function open(conn) return not parked(conn) and restricted[conn] ~= 0 end
-- The due jobs of one line over all connectors, in order.
local function due(line, before)
  local found, many = {}, 0
  for _, conn in ipairs(conns) do
    if open(conn) then
      local ids = call('ZRANGEBYSCORE', P .. line .. conn, '-inf', before, 'WITHSCORES', 'LIMIT', 0, most - given)
      if #ids > 0 then many = many + 1 end
      for i = 1, #ids, 2 do found[#found + 1] = {tonumber(ids[i + 1]), ids[i]} end
    end
  end
  if many > 1 then
    table.sort(found, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  end
  return found
end
local function outputs()
  for _, one in ipairs(due('o:', '+inf')) do
    if given >= most then return end
    local m = load(one[2])
    if m then pick(one[2], m) end
  end
end
local function going()
  local found, ended = due('g:', now), false
  for i = 1, #found do
    found[i][3] = load(found[i][2])
    if found[i][3] and found[i][3][OWNER] ~= '' then
      -- A lease that ended: the job is due since its step was.
      ended = true
      found[i][1] = found[i][3][KIND] == 2 and -1 or found[i][3][DUE]
    end
  end
  if ended then
    table.sort(found, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  end
  for _, one in ipairs(found) do
    if given >= most then return end
    local id, m = one[2], one[3]
    if m then
      if m[KIND] ~= 1 then
        pick(id, m)
      elseif starts(m[CONN]) then
        -- It has its place and was let through the gate when it was leased first.
        given = given + 1
        give(id, m, lease_ms, rows)
      else
        local z, score, at = stand(m)
        enter(id, m, z, score, at)
        save(id, m)
      end
    end
  end
end
local function placed()
  for _, conn in ipairs(conns) do
    if open(conn) and starts(conn) then
      for _, id in ipairs(call('ZRANGE', P .. 'p:' .. conn, 0, most - given - 1)) do
        if given >= most then return end
        local m = load(id)
        if m then
          given = given + 1
          give(id, m, lease_ms, rows)
        end
      end
    end
  end
end
-- Fresh starts: the best of every connector that takes any, tenants by turns weighted.
local function fresh()
  local heads = {}
  for _, conn in ipairs(conns) do
    if open(conn) and starts(conn) and restricted[conn] ~= 1 then
      heads[#heads + 1] = {conn = conn, seen = {}}
    end
  end
  -- What a gate must be asked for stays in its line, so that its turn is counted here alone.
  local function head(h)
    local ft = P .. 'ft:' .. h.conn
    while true do
      if not h.tenant then
        local first
        if h.turn then
          for t, v in pairs(h.turn) do
            if not first or v < h.turn[first] or (v == h.turn[first] and t < first) then first = t end
          end
        else
          h.turn = {}
          local all = call('ZRANGE', ft, 0, 255, 'WITHSCORES')
          for i = 1, #all, 2 do h.turn[all[i]] = tonumber(all[i + 1]) end
          first = all[1]
        end
        if not first then return nil end
        h.tenant = first
      end
      local at = h.seen[h.tenant] or 0
      local one = call('ZRANGE', P .. 'f:' .. h.conn .. ':' .. h.tenant, at, at, 'WITHSCORES')
      if one[1] then return one[1], tonumber(one[2]) end
      if at == 0 then call('ZREM', ft, h.tenant) end
      h.turn[h.tenant] = nil
      h.tenant = nil
    end
  end
  while given < most do
    local best, bh, bid
    for _, h in ipairs(heads) do
      if not h.done then
        if not h.id then h.id, h.score = head(h) end
        if not h.id then
          h.done = true
        elseif not best or h.score < best then
          best, bh, bid = h.score, h, h.id
        end
      end
    end
    if not bh then return end
    local tenant = bh.tenant
    bh.id, bh.tenant = nil, nil
    local m = load(bid)
    if m then
      local v = bh.turn[tenant] + (strides[tenant] or 1)
      bh.turn[tenant] = v
      if restricted[bh.conn] == 2 then
        bh.seen[tenant] = (bh.seen[tenant] or 0) + 1
      else
        call('HSET', KEYS[1], 'v:' .. bh.conn, v)
        call('ZADD', P .. 'ft:' .. bh.conn, 'XX', v, tenant)
      end
      pick(bid, m, best)
    else
      call('ZREM', P .. 'f:' .. bh.conn .. ':' .. tenant, bid)
    end
  end
end
for _, phase in ipairs({outputs, going, placed, fresh}) do
  if given < most then phase() end
end
remember(C[3], rows)
local next = NEVER
if given >= most then
  next = now
else
  local l = call('ZRANGE', P .. 'l', 0, 0, 'WITHSCORES')
  if l[2] then next = tonumber(l[2]) end
  for _, conn in ipairs(conns) do
    if open(conn) then
      local g = call('ZRANGE', P .. 'g:' .. conn, 0, 0, 'WITHSCORES')
      if g[2] then next = math.min(next, tonumber(g[2])) end
      local h = hold[conn]
      if h and string.sub(h, 1, 1) == 'c' then
        local ends = tonumber(string.sub(h, 3))
        if ends > now and (call('EXISTS', P .. 'ft:' .. conn) == 1 or call('EXISTS', P .. 'p:' .. conn) == 1) then
          next = math.min(next, ends)
        end
      end
    end
  end
end
call('HSET', KEYS[1], 'promised', next)
return {now, next, rows, asked}
