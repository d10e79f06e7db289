-- Shared by every script on a shard. KEYS[1] is the shard's state, `<prefix>{<shard>}:s`; all other keys of the shard
-- begin alike and hash to the same slot. ARGV[1] is {now, worker, shards, shard, channel, most
-- exchanges, most bytes of them, process}: `now` is 0 where the server's own clock counts. Scripts apply; what happens to a job is decided before they are called.
local P = string.sub(KEYS[1], 1, -2)
local A = cmsgpack.unpack(ARGV[1])
local call = redis.call
local now = A[1]
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local NEVER = 9007199254740000
-- A job's moving numbers. `m` holds those of all jobs of the shard, so that a script reads and writes many by one command.
local REV, SEQ, STATE, SLOT, FENCE, OWNER, UNTIL, Z, KIND, DUE, DIES, PRIO, KILLS, CONN, TENANT, LAST, NONCE, CREATED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
-- Lines of the queue: going (and leased, by the lease's end), outputs, fresh, later, placed. KIND: 1 a fresh start,
-- 2 outputs, 3 any other step, 0 none.
local GOING, OUTPUTS, FRESH, LATER, PLACED = 1, 2, 3, 4, 5

local function jkey(id) return P .. 'j:' .. id end
-- What a script has read, and what of it is to be written: a command costs more than what it does, so that scripts collect what
-- they write many of and write it once, at their end (flush).
local known, unsaved = {}, {}
-- Reads several at once; load() finds them.
local function fetch(ids)
  local args = {'HMGET', P .. 'm'}
  local function read()
    local texts = call(unpack(args))
    for i = 1, #texts do known[args[i + 2]] = texts[i] and cmsgpack.unpack(texts[i]) end
    args = {'HMGET', P .. 'm'}
  end
  for i = 1, #ids do
    if known[ids[i]] == nil then args[#args + 1] = ids[i] end
    if #args > 200 then read() end
  end
  if #args > 2 then read() end
end
local function ids_from(first)
  local ids = {}
  for a = first, #ARGV do ids[a - first + 1] = ARGV[a] end
  return ids
end
-- One job's, the same table each time; false where there is no such job.
local function load(id)
  if known[id] == nil then fetch({id}) end
  return known[id]
end
local function save(id, m) known[id], unsaved[id] = m, true end
-- Places in lines of steps under way, by key and job.
local places = {}
local function place(key, id, score)
  local line = places[key]
  if not line then
    line = {}
    places[key] = line
  end
  line[id] = score
end
-- A command that takes any number of arguments, in pieces.
local function in_pieces(command, key, flat)
  for from = 1, #flat, 200 do call(command, key, unpack(flat, from, math.min(from + 199, #flat))) end
end
local function write_places()
  for key, line in pairs(places) do
    local flat, n = {}, 0
    for id, score in pairs(line) do
      -- A number would be written as a fraction could be.
      flat[n + 1], flat[n + 2] = string.format('%d', score), id
      n = n + 2
    end
    in_pieces('ZADD', key, flat)
  end
  places = {}
end
-- Takes back what is collected of a job: its change failed.
local function discard(id)
  known[id], unsaved[id] = nil, nil
  for _, line in pairs(places) do line[id] = nil end
end
local function zkey(z, m)
  if z == GOING then return P .. 'g:' .. m[CONN] end
  if z == OUTPUTS then return P .. 'o:' .. m[CONN] end
  if z == FRESH then return P .. 'f:' .. m[CONN] .. ':' .. m[TENANT] end
  if z == LATER then return P .. 'l' end
  return P .. 'p:' .. m[CONN]
end
-- Where a job without a lease stands: its line, its place in it, and when a claim may have to look there.
local function stand(m)
  local kind, due = m[KIND], m[DUE]
  if kind == 0 then return 0, 0, NEVER end
  if kind == 3 then return GOING, due, due end
  if due > now then return LATER, due, due end
  -- Links that do not die come last, by due time; a double holds both scales exactly.
  if kind == 2 then return OUTPUTS, m[DIES] >= 0 and m[DIES] or 4e15 + due, now end
  return m[SLOT] == 1 and PLACED or FRESH, -m[PRIO] * 4e12 + due, now
end
-- Tenants take turns at a connector's fresh starts (limits::Turns): `ft:` holds those who wait at their virtual times, `v:`
-- the present time, `ta:` the times of those who are ahead of it and do not wait.
local function turns_leave(conn, tenant)
  local ft = P .. 'ft:' .. conn
  local time = call('ZSCORE', ft, tenant)
  if not time then return end
  call('ZREM', ft, tenant)
  if tonumber(time) > tonumber(call('HGET', KEYS[1], 'v:' .. conn) or 0) then
    call('HSET', P .. 'ta:' .. conn, tenant, time)
  end
end
local function turns_join(conn, tenant)
  local ft = P .. 'ft:' .. conn
  if call('ZSCORE', ft, tenant) then return end
  local time = tonumber(call('HGET', KEYS[1], 'v:' .. conn) or 0)
  local ahead = call('HGET', P .. 'ta:' .. conn, tenant)
  if ahead then
    time = math.max(time, tonumber(ahead))
    call('HDEL', P .. 'ta:' .. conn, tenant)
  end
  call('ZADD', ft, time, tenant)
end
local function turns_took(conn, tenant, stride)
  local ft = P .. 'ft:' .. conn
  local time = tonumber(call('ZSCORE', ft, tenant) or 0)
  -- In one shard of several the present is the next turn: a tenant that comes back would else go first in each of them.
  local present = A[3] == 1 and time or time + stride
  if present > tonumber(call('HGET', KEYS[1], 'v:' .. conn) or 0) then
    call('HSET', KEYS[1], 'v:' .. conn, string.format('%.0f', present))
  end
  call('ZADD', ft, 'XX', string.format('%.0f', time + stride), tenant)
end
local function leave(id, m)
  if m[Z] == 0 then return end
  local key = zkey(m[Z], m)
  if places[key] then places[key][id] = nil end
  call('ZREM', key, id)
  if m[Z] == FRESH and call('EXISTS', key) == 0 then turns_leave(m[CONN], m[TENANT]) end
  m[Z] = 0
end
-- When the next claim was told to come; who puts something earlier into a line wakes the claimers.
local promised, promise
local woke = 0
local function told(at)
  if promised == nil then promised = tonumber(call('HGET', KEYS[1], 'promised') or NEVER) end
  if at < promised then
    promised, promise = at, at
    woke = 1
  end
end
-- Puts a job into a line, taking it out of the one it stood in.
local function enter(id, m, z, score, at)
  if m[Z] ~= z then leave(id, m) end
  m[Z] = z
  if z == 0 then return end
  if z == GOING then place(zkey(z, m), id, score) else call('ZADD', zkey(z, m), score, id) end
  if z == FRESH then turns_join(m[CONN], m[TENANT]) end
  told(at)
end
local function unlease(id, m)
  m[OWNER], m[UNTIL] = '', 0
  local z, score, at = stand(m)
  enter(id, m, z, score, at)
end
-- Requests that went out, in windows of ten seconds (limits::Meter).
local function meter(conn, count)
  local window = math.floor(now / 10000)
  if call('HINCRBY', P .. 'mt', conn .. '|' .. window, count) == count then
    for old = window - 4, window - 2 do call('HDEL', P .. 'mt', conn .. '|' .. old) end
  end
end
-- Sums of money and units, each in whole numbers and billionths: {name, whole, billionths, ...}.
local function add_amounts(key, prefix, list, sign)
  for i = 1, #list, 3 do
    local name = prefix .. list[i]
    if list[i + 1] ~= '0' then
      local whole = list[i + 1]
      if sign < 0 then whole = string.sub(whole, 1, 1) == '-' and string.sub(whole, 2) or '-' .. whole end
      call('HINCRBY', key, name .. 'w', whole)
    end
    if list[i + 2] ~= '0' then
      local part = list[i + 2]
      if sign < 0 then part = string.sub(part, 1, 1) == '-' and string.sub(part, 2) or '-' .. part end
      call('HINCRBY', key, name .. 'n', part)
    end
  end
end
-- What was booked, under `<tenant><US><month><US><unit>`; the tenants of a shard are kept, so that nobody who spent is missed.
local function spend(list)
  add_amounts(P .. 'sp', '', list, 1)
  for i = 1, #list, 3 do call('SADD', P .. 'rt', string.match(list[i], '^[^\31]*')) end
end
-- What is set aside for a job, in its own field `rv` and in its tenant's sum.
local function reserve(id, m, list)
  local held = call('HGET', jkey(id), 'rv')
  local key = P .. 'rs:' .. m[TENANT]
  if held then add_amounts(key, '', cmsgpack.unpack(held), -1) end
  if #list > 0 then
    add_amounts(key, '', list, 1)
    call('HSET', jkey(id), 'rv', cmsgpack.pack(list))
    call('SADD', P .. 'rt', m[TENANT])
  elseif held then
    call('HDEL', jkey(id), 'rv')
  end
  return held ~= false
end
local function slot(id, m, takes)
  if m[SLOT] == takes then return false end
  if takes == 1 then call('SADD', P .. 'sl:' .. m[CONN], id) else call('SREM', P .. 'sl:' .. m[CONN], id) end
  m[SLOT] = takes
  return takes == 0
end
-- How the counts of jobs by connector and state change, written once at the end: most moves of a batch cancel out.
local moves = {}
local function move(conn, st, by)
  local name = conn .. '|' .. st
  moves[name] = (moves[name] or 0) + by
end
-- The lists of jobs by state, `js:`, which no script reads: written once at the end, by one command a list.
local was_listed, listed = {}, {}
local function relist(id, from, to, created)
  if was_listed[id] == nil then was_listed[id] = from end
  listed[id] = {to, created}
end
local function write_lists()
  local calls = {}
  local function add(command, st, a, b)
    local key = command .. st
    local args = calls[key]
    if not args or #args > 200 then
      if args then call(unpack(args)) end
      args = {command, P .. 'js:' .. st}
      calls[key] = args
    end
    args[#args + 1] = a
    args[#args + 1] = b
  end
  for id, to in pairs(listed) do
    local from = was_listed[id]
    if from and from ~= to[1] then add('ZREM', from, id) end
    if from ~= to[1] then add('ZADD', to[1], to[2], id) end
  end
  for _, args in pairs(calls) do call(unpack(args)) end
end
local function state(id, m, to)
  if m[STATE] == to then return end
  local from = m[STATE]
  move(m[CONN], from, -1)
  move(m[CONN], to, 1)
  relist(id, from, to, m[CREATED])
  m[STATE] = to
end
-- A job's numbers and fields of its own.
local function save_all(id, m, fields)
  save(id, m)
  in_pieces('HSET', jkey(id), fields)
end
local function ledger(lines)
  for i = 1, #lines, 3 do
    call('SADD', P .. 'ld', lines[i])
    call('HSET', P .. 'u:' .. lines[i], lines[i + 1], lines[i + 2])
  end
end
-- What watchers are told, in one message at the end.
local changes = {}
local function tell(id, m)
  changes[#changes + 1] = {id, m[TENANT], m[SEQ], m[STATE]}
end
local position_now
-- Writes what was collected: the end of every script that changes a job.
local function flush()
  local flat, n = {}, 0
  for id in pairs(unsaved) do
    flat[n + 1], flat[n + 2] = id, cmsgpack.pack(known[id])
    n = n + 2
  end
  in_pieces('HSET', P .. 'm', flat)
  unsaved = {}
  write_places()
  if promise then call('HSET', KEYS[1], 'promised', string.format('%d', promise)) end
  if position_now then call('HSET', KEYS[1], 'pos', string.format('%d', position_now)) end
end
-- The same, and tells of it: the end of every script that moves a job or adds to its history.
local function done()
  flush()
  write_lists()
  for name, by in pairs(moves) do
    if by ~= 0 then call('HINCRBY', P .. 'n', name, by) end
  end
  if #changes > 0 then call('PUBLISH', A[5], cmsgpack.pack({'c', changes})) end
  if woke == 1 then call('PUBLISH', A[5], cmsgpack.pack({'w', A[8], A[4]})) end
end
-- The next position: dense where there is one shard; else it tells the time, so that shards can be merged.
local function position()
  local last = position_now or tonumber(call('HGET', KEYS[1], 'pos') or 0)
  position_now = A[3] == 1 and last + 1 or math.max(last + 64, (now - 1767225600000) * 8192 + A[4])
  return position_now
end
-- Appends lines of history; answers the fields to write.
local function history(id, m, events, raw, fields)
  for i = 1, #events do
    m[SEQ] = m[SEQ] + 1
    local pos = position()
    fields[#fields + 1] = 'e' .. m[SEQ]
    fields[#fields + 1] = string.format('%d,%d,%d,', pos, now, raw or 0) .. events[i]
    call('XADD', P .. 'ev', 'MAXLEN', '~', 200000, string.format('%d-1', pos), 'j', id, 's', m[SEQ], 't', m[TENANT])
  end
end
local function chore(conn, text, at)
  if conn ~= '' then
    local waiting = call('HGET', P .. 'cc', conn)
    if waiting then
      local was = tonumber(call('ZSCORE', P .. 'cz', waiting))
      if at < was then call('ZADD', P .. 'cz', at, waiting) end
      told(at)
      return
    end
  end
  local n = call('HINCRBY', KEYS[1], 'chore', 1)
  local id = string.format('%d', n * A[3] + A[4])
  if conn ~= '' then call('HSET', P .. 'cc', conn, id) end
  call('HSET', P .. 'cd', id, cmsgpack.pack({0, 0, '', now, conn, text}))
  call('ZADD', P .. 'cz', at, id)
  told(at)
end
