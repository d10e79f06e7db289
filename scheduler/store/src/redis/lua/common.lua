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
-- A job's head with what quiet polls have changed of it.
local function with_quiet(head, m)
  if not head or not m[QUIET] or m[QUIET] == '' then return head end
  return head .. '\n' .. m[QUIET]
end
local function save(id, m) known[id], unsaved[id] = m, true end
-- Members of sorted sets and sets, by key: what a member is to be, a score or true, or false where it is to go.
local members = {}
local function put(key, member, as)
  local of = members[key]
  if not of then
    of = {}
    members[key] = of
  end
  of[member] = as
end
local function take(key, member) put(key, member, false) end
-- A command that takes any number of arguments, in pieces.
local function in_pieces(command, key, flat)
  for from = 1, #flat, 200 do call(command, key, unpack(flat, from, math.min(from + 199, #flat))) end
end
local function write_members()
  for key, of in pairs(members) do
    local scored, plain, gone = {}, {}, {}
    for member, as in pairs(of) do
      if as == true then
        plain[#plain + 1] = member
      elseif as then
        local n = #scored
        -- A number would be written as a fraction could be.
        scored[n + 1], scored[n + 2] = string.format('%d', as), member
      else
        gone[#gone + 1] = member
      end
    end
    in_pieces('ZADD', key, scored)
    in_pieces('SADD', key, plain)
    -- Of what is collected, `sl:` alone are plain sets.
    in_pieces(string.sub(key, #P + 1, #P + 3) == 'sl:' and 'SREM' or 'ZREM', key, gone)
  end
  members = {}
end
-- Fields of the shard's state, read once, and those to be written.
local noted, notes = {}, {}
local function note(name, value)
  noted[name], notes[name] = value, true
end
local function number_of(name)
  if noted[name] == nil then noted[name] = tonumber(call('HGET', KEYS[1], name) or nil) or false end
  return noted[name]
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
local turns = {}
local function time_of(conn, tenant)
  turns[conn] = turns[conn] or {}
  local time = turns[conn][tenant]
  if time == nil then
    time = tonumber(call('ZSCORE', P .. 'ft:' .. conn, tenant) or nil) or false
    turns[conn][tenant] = time
  end
  return time
end
local function set_time(conn, tenant, time)
  turns[conn][tenant] = time
  put(P .. 'ft:' .. conn, tenant, time)
end
local function turns_leave(conn, tenant)
  local time = time_of(conn, tenant)
  if not time then return end
  set_time(conn, tenant, false)
  if time > (number_of('v:' .. conn) or 0) then call('HSET', P .. 'ta:' .. conn, tenant, string.format('%d', time)) end
end
local function turns_join(conn, tenant)
  if time_of(conn, tenant) then return end
  local time = number_of('v:' .. conn) or 0
  local ahead = call('HGET', P .. 'ta:' .. conn, tenant)
  if ahead then
    time = math.max(time, tonumber(ahead))
    call('HDEL', P .. 'ta:' .. conn, tenant)
  end
  set_time(conn, tenant, time)
end
local function turns_took(conn, tenant, stride)
  local waits = time_of(conn, tenant)
  local time = waits or 0
  -- In one shard of several the present is the next turn: a tenant that comes back would else go first in each of them.
  local present = A[3] == 1 and time or time + stride
  if present > (number_of('v:' .. conn) or 0) then note('v:' .. conn, present) end
  if waits then set_time(conn, tenant, time + stride) end
end
-- Lines of fresh starts that a job has left: whose turns they are, once it is known whether they are empty.
local left = {}
local function leave(id, m)
  if m[Z] == 0 then return end
  local key = zkey(m[Z], m)
  take(key, id)
  if m[Z] == FRESH then left[key] = {m[CONN], m[TENANT]} end
  m[Z] = 0
end
-- Writes where jobs stand: before lines are read, and at the end.
local function write_lines()
  write_members()
  for key, of in pairs(left) do
    if call('EXISTS', key) == 0 then turns_leave(of[1], of[2]) end
  end
  left = {}
  write_members()
end
-- New events for the shard's stream: {position, job, number, tenant} each. They go as one entry, under the last position.
local stream = {}
-- Takes back what is collected of a job: its change failed.
local function discard(id)
  known[id], unsaved[id] = nil, nil
  for _, of in pairs(members) do of[id] = nil end
  for i = #stream, 1, -1 do
    if stream[i][2] == id then table.remove(stream, i) end
  end
end
-- When the next claim was told to come; who puts something earlier into a line wakes the claimers.
local woke = 0
local function told(at)
  if at < (number_of('promised') or NEVER) then
    note('promised', at)
    woke = 1
  end
end
-- Puts a job into a line, taking it out of the one it stood in.
local function enter(id, m, z, score, at)
  if m[Z] ~= z then leave(id, m) end
  m[Z] = z
  if z == 0 then return end
  put(zkey(z, m), id, score)
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
  local held = m[HELD] == 1
  local key = P .. 'rs:' .. m[TENANT]
  if held then add_amounts(key, '', cmsgpack.unpack(call('HGET', jkey(id), 'rv')), -1) end
  if #list > 0 then
    add_amounts(key, '', list, 1)
    call('HSET', jkey(id), 'rv', cmsgpack.pack(list))
    call('SADD', P .. 'rt', m[TENANT])
  elseif held then
    call('HDEL', jkey(id), 'rv')
  end
  m[HELD] = #list > 0 and 1 or 0
  return held
end
local function slot(id, m, takes)
  if m[SLOT] == takes then return false end
  put(P .. 'sl:' .. m[CONN], id, takes == 1)
  m[SLOT] = takes
  return takes == 0
end
-- How the counts of jobs by connector and state change, written once at the end: most moves of a batch cancel out.
local moves = {}
local function move(conn, st, by)
  local name = conn .. '|' .. st
  moves[name] = (moves[name] or 0) + by
end
local function state(id, m, to)
  if m[STATE] == to then return end
  local from = m[STATE]
  move(m[CONN], from, -1)
  move(m[CONN], to, 1)
  take(P .. 'js:' .. from, id)
  put(P .. 'js:' .. to, id, m[CREATED])
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
local function write_stream(list)
  if #list == 0 then return end
  call('XADD', P .. 'ev', 'MAXLEN', '~', 100000, string.format('%d-1', list[#list][1]), 'l', cmsgpack.pack(list))
end
-- Writes what was collected: the end of every script that changes a job.
local function flush()
  local flat, n = {}, 0
  for id in pairs(unsaved) do
    flat[n + 1], flat[n + 2] = id, cmsgpack.pack(known[id])
    n = n + 2
  end
  in_pieces('HSET', P .. 'm', flat)
  unsaved = {}
  write_lines()
  write_stream(stream)
  stream = {}
  flat, n = {}, 0
  for name in pairs(notes) do
    flat[n + 1], flat[n + 2] = name, string.format('%d', noted[name])
    n = n + 2
  end
  in_pieces('HSET', KEYS[1], flat)
  notes = {}
end
-- The same, and tells of it: the end of every script that moves a job or adds to its history.
local function done()
  flush()
  for name, by in pairs(moves) do
    if by ~= 0 then call('HINCRBY', P .. 'n', name, by) end
  end
  if #changes > 0 then call('PUBLISH', A[5], cmsgpack.pack({'c', changes})) end
  if woke == 1 then call('PUBLISH', A[5], cmsgpack.pack({'w', A[8], A[4]})) end
end
-- The next position: dense where there is one shard; else it tells the time, so that shards can be merged.
local function position()
  local last = number_of('pos') or 0
  note('pos', A[3] == 1 and last + 1 or math.max(last + 64, (now - 1767225600000) * 8192 + A[4]))
  return noted.pos
end
-- Appends lines of history, and adds the fields to write.
local function history(id, m, events, raw, fields)
  for i = 1, #events do
    m[SEQ] = m[SEQ] + 1
    local pos = position()
    fields[#fields + 1] = 'e' .. m[SEQ]
    fields[#fields + 1] = string.format('%d,%d,%d,', pos, now, raw or 0) .. events[i]
    stream[#stream + 1] = {pos, id, m[SEQ], m[TENANT]}
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
