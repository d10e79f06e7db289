-- ARGV[2] is {most, lease_ms, nonce, lost nonce, restricted, strides, tenants, quiet_ms}: restricted says of a connector, added up, 1 no
-- starts, 2 its gate is asked for a start, 4 for any step, 8 nothing at all, 16 it is asked for a start that has its place too, 32 none of those; strides are those of tenants with a weight;
-- tenants says of a tenant 2 its budget is asked, and of `connector<US>tenant` 1 no starts.
-- A server that was started anew, or took another's place, may have forgotten its newest second: for quiet_ms (0: it cannot) no
-- fresh start is handed out, so that workers can tell what they had started.
-- Answers {now, next due, rows, asked, order, when it was last seen to come back}: rows as lease.lua gives them; asked are those that something must be asked for,
-- {id, connector, kind (4: a start that has its place), place in its line, tenant} flat; order has the ids of both.
local C = cmsgpack.unpack(ARGV[2])
local most, lease_ms = C[1], C[2]
local restricted, strides, tenants = C[5], C[6], C[7]
local function has(conn, what) return bit.band(restricted[conn] or 0, what) ~= 0 end
local taken = {}
forget(C[4])
local quiet_until, returned = same_server(C[8])
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
local due_now = call('ZRANGEBYSCORE', P .. 'l', '-inf', now, 'LIMIT', 0, 256)
fetch(due_now)
for _, id in ipairs(due_now) do
  local m = load(id)
  if m then
    unlease(id, m)
    save(id, m)
  else
    call('ZREM', P .. 'l', id)
  end
end
write_lines()
local conns = call('SMEMBERS', P .. 'cs')
table.sort(conns)
local rows, asked, order, given = {}, {}, {}, 0
local function pick(id, m, score)
  given = given + 1
  order[given] = id
  local kind = m[KIND]
  if kind == 1 and m[SLOT] == 1 then kind = 4 end
  if has(m[CONN], 4) or (kind == 4 and has(m[CONN], 16)) or (kind == 1 and (has(m[CONN], 2) or tenants[m[TENANT]])) then
    local n = #asked
    asked[n + 1], asked[n + 2], asked[n + 3], asked[n + 4], asked[n + 5] = id, m[CONN], kind, score, m[TENANT]
    return
  end
  taken[m[CONN]] = (taken[m[CONN]] or 0) + 1
  give(id, m, lease_ms, rows)
end
local function open(conn) return not parked(conn) and not has(conn, 8) end
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
  local ids = {}
  for i = 1, #found do ids[i] = found[i][2] end
  fetch(ids)
  return found
end
-- Steps under way, read first: a lease that ended is found among them, and what it held goes where it belongs, as due as it
-- was. Its owner stays written down until somebody takes the job over, which counts a kill.
local underway = {}
do
  local found, ended = due('g:', now), false
  for i = 1, #found do
    local id, m = found[i][2], load(found[i][2])
    if m and m[OWNER] ~= '' and m[KIND] ~= 3 then
      local z, score, at = stand(m)
      enter(id, m, z, score, at)
      save(id, m)
    elseif m then
      if m[OWNER] ~= '' then found[i][1], ended = m[DUE], true end
      found[i][3] = m
      underway[#underway + 1] = found[i]
    end
  end
  if ended then
    table.sort(underway, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  end
end
write_lines()
local function outputs()
  for _, one in ipairs(due('o:', '+inf')) do
    if given >= most then return end
    local m = load(one[2])
    if m then pick(one[2], m, one[1]) end
  end
end
local function going()
  for _, one in ipairs(underway) do
    if given >= most then return end
    pick(one[2], one[3], one[1])
  end
end
-- Where several shards each begin with the same tenant, few starts in each make an unfair whole: there every shard shifts every
-- tenant's turns by a part of its stride.
local shifts = {}
local function shift(tenant)
  if A[3] == 1 then return 0 end
  if not shifts[tenant] then
    local part = tonumber(string.sub(redis.sha1hex(A[4] .. ':' .. tenant), 1, 4), 16) / 65536
    shifts[tenant] = part * (strides[tenant] or 1000000)
  end
  return shifts[tenant]
end
-- Fresh starts: the best of every connector that takes any, tenants by turns weighted.
local function fresh()
  if now < quiet_until then return end
  local heads = {}
  for _, conn in ipairs(conns) do
    if open(conn) and starts(conn) then
      if not has(conn, 32) then heads[#heads + 1] = {conn = conn, placed = {key = P .. 'p:' .. conn, stay = 0}} end
      if not has(conn, 1) then heads[#heads + 1] = {conn = conn, lines = {}} end
    end
  end
  -- The next of a line, which is read ahead: what was handed out has left it, what a gate must be asked for stays (`stay`).
  local function next_of(line)
    if not line.flat or (line.at > #line.flat and not line.whole) then
      if line.flat then write_lines() end
      local count = math.min(most - given, 64)
      line.flat = call('ZRANGE', line.key, line.stay, line.stay + count - 1, 'WITHSCORES')
      line.at, line.whole = 1, #line.flat < 2 * count
      local ids = {}
      for i = 1, #line.flat, 2 do ids[#ids + 1] = line.flat[i] end
      fetch(ids)
    end
    return line.flat[line.at], tonumber(line.flat[line.at + 1])
  end
  local function head(h)
    if h.placed then return next_of(h.placed) end
    local ft = P .. 'ft:' .. h.conn
    while true do
      if not h.tenant then
        local first
        if not h.ready then
          h.turn = {}
          local all = call('ZRANGE', ft, 0, 255, 'WITHSCORES')
          for i = 1, #all, 2 do
            if tenants[h.conn .. '\31' .. all[i]] ~= 1 then h.turn[all[i]] = tonumber(all[i + 1]) + shift(all[i]) end
          end
          h.ready = true
        end
        for t, v in pairs(h.turn) do
          if not first or v < h.turn[first] or (v == h.turn[first] and t < first) then first = t end
        end
        if not first then return nil end
        h.tenant = first
      end
      local line = h.lines[h.tenant]
      if not line then
        line = {key = P .. 'f:' .. h.conn .. ':' .. h.tenant, stay = 0}
        h.lines[h.tenant] = line
      end
      local id, score = next_of(line)
      if id then return id, score end
      if line.stay == 0 then turns_leave(h.conn, h.tenant) end
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
        elseif not best or h.score < best or (h.score == best and h.id < bid) then
          best, bh, bid = h.score, h, h.id
        end
      end
    end
    if not bh then return end
    local tenant = bh.tenant
    local line = bh.placed or bh.lines[tenant]
    bh.id, bh.tenant = nil, nil
    line.at = line.at + 2
    local m = load(bid)
    if bh.placed then
      -- Where the gate is asked it stays in its line for now.
      if m and has(bh.conn, 20) then line.stay = line.stay + 1 end
      if m then pick(bid, m, best) else take(line.key, bid) end
    elseif m then
      local stride = strides[tenant] or 1000000
      bh.turn[tenant] = bh.turn[tenant] + stride
      local asks = has(bh.conn, 6) or tenants[tenant]
      if asks then
        line.stay = line.stay + 1
      else
        turns_took(bh.conn, tenant, stride)
      end
      pick(bid, m, best)
    else
      take(line.key, bid)
    end
  end
end
for _, phase in ipairs({outputs, going, fresh}) do
  if given < most then phase() end
end
remember(C[3], rows)
write_lines()
for conn, count in pairs(taken) do meter(conn, count) end
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
if now < quiet_until and next > quiet_until then next = quiet_until end
note('promised', next)
flush()
return {now, next, rows, asked, #asked > 0 and order or {}, returned}
