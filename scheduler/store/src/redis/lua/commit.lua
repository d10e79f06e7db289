-- ARGV[2..]: commits, each followed by its exchanges' packed texts: {id, fence (-1: a signal), rev, nonce, head, state, kind, due, dies, prio, slot, keep (-1: a
-- signal, -2: look at the guards only), finished (-1: not final), kills, events, exchanges, fields, reserve ({}: nothing, {0}: as it is), more, quiet (or nil: what it changes of
-- the head, which is empty then)}: lists may be nil where they are empty, and so is more, which else is {chores, ledger, artifacts, spend, lesson (or nil), a vendor's id that is new (or nil)}.
-- Answers for each {1, rev, seq, freed, relieved, took (1: it
-- has a place that no gate gave, as a replay does)},
-- {2, head, rev, seq, kills} where another revision stands, {3} where the lease is another's,
-- {4} where nothing stands in the way and nothing was to be written, {5, why} where it failed: the others are written all the same.
local FIRST, MOST, BYTES = 16, tonumber(A[6]), tonumber(A[7])
-- Counts the bytes of texts that lie here.
local function held(by) note('xb', (number_of('xb') or 0) + by) end
local function drop(key, x)
  -- From the middle: how a job began and how it stands are what people look for.
  while x[3] > MOST or x[4] > BYTES do
    local from = x[3] > FIRST and x[5] or x[6]
    if from <= FIRST and x[3] > FIRST then from = FIRST + 1 end
    -- What lies in segments takes none of the bytes.
    local skips = x[3] <= MOST and from <= (x[7] or 0)
    if skips then from = x[7] + 1 end
    local gone, pointer
    while from < x[1] do
      gone = call('HSTRLEN', key, 'y' .. from)
      pointer = gone == 0 and call('HGET', key, 'z' .. from)
      if gone > 0 or pointer then break end
      from = from + 1
    end
    if from >= x[1] then return end
    call('HDEL', key, 'x' .. from, 'y' .. from, 'z' .. from)
    if pointer then drop_pointer(key, pointer) end
    held(-gone)
    x[3], x[4] = x[3] - 1, x[4] - gone
    if not skips then x[from > FIRST and 5 or 6] = from + 1 end
  end
end
-- Records exchanges; answers the number of the last.
local function record(id, list, texts)
  local key = jkey(id)
  local x = call('HGET', key, 'x')
  -- {last number, its fingerprint, how many, bytes of texts here, lowest droppable, lowest droppable of the first, up to which
  -- number texts have moved into segments}
  x = x and cmsgpack.unpack(x) or {0, '', 0, 0, FIRST + 1, 2, 0}
  for i = 1, #list do
    local e = list[i]
    if x[1] > 0 and x[2] == e[1] then
      local one = cmsgpack.unpack(call('HGET', key, 'x' .. x[1]))
      one[1], one[3] = one[1] + 1, now
      call('HSET', key, 'x' .. x[1], cmsgpack.pack(one))
    else
      x[1], x[2], x[3], x[4] = x[1] + 1, e[1], x[3] + 1, x[4] + #ARGV[texts + i]
      call('HSET', key, 'x' .. x[1], cmsgpack.pack({1, now, now, e[2], e[3], e[4], e[1]}), 'y' .. x[1], ARGV[texts + i])
      held(#ARGV[texts + i])
      drop(key, x)
      -- The first that is neither moved nor the newest: from now on there is something to move.
      if x[1] == (x[7] or 0) + 2 then put(P .. 'xq', id, now) end
    end
  end
  call('HSET', key, 'x', cmsgpack.pack(x))
  return x[1]
end
-- Counts a sample: {kind, bucket, samples of a generation, kinds kept}. The generation that it fills becomes the elder.
local function teach(t)
  local key = P .. 'd:' .. t[1]
  local young = call('HGET', key, 'g') or '0'
  call('HINCRBY', key, young .. ':' .. t[2], 1)
  local samples = call('HINCRBY', key, 'n', 1)
  if samples >= t[3] then
    local elder = young == '0' and '1' or '0'
    for _, field in ipairs(call('HKEYS', key)) do
      if string.sub(field, 1, 2) == elder .. ':' then call('HDEL', key, field) end
    end
    call('HSET', key, 'g', elder, 'n', 0)
  end
  call('ZADD', P .. 'dk', 'GT', now, t[1])
  if samples == 1 and call('ZCARD', P .. 'dk') > t[4] then
    call('UNLINK', P .. 'd:' .. call('ZPOPMIN', P .. 'dk')[1])
  end
end
-- Adds to the vendor's ids that a job has had, in its field `v`.
local function add_id(key, new)
  local ids = call('HGET', key, 'v')
  if not ids or ids == '' then
    ids = new
  elseif not string.find('\31' .. ids .. '\31', '\31' .. new .. '\31', 1, true) then
    ids = ids .. '\31' .. new
  end
  call('HSET', key, 'v', ids)
end
-- The job's artifacts, in the order in which they were first recorded.
local function add_artifacts(key, ids)
  local known = call('HGET', key, 'al')
  known = known and cmsgpack.unpack(known) or {}
  local has = {}
  for _, one in ipairs(known) do has[one] = true end
  for _, one in ipairs(ids) do
    if not has[one] then known[#known + 1] = one end
  end
  call('HSET', key, 'al', cmsgpack.pack(known))
end
-- What few commits bring.
local function add(id, more)
  for i = 1, #more[1], 2 do chore(more[1][i], more[1][i + 1], now) end
  ledger(more[2])
  if #more[3] > 0 then add_artifacts(jkey(id), more[3]) end
  spend(more[4])
  if more[5] then teach(more[5]) end
  if more[6] then add_id(jkey(id), more[6]) end
end
local function apply(c, m, at)
  local id, events, exchanges, fields = c[1], c[15], c[16], c[17] or {}
  local raw = exchanges and record(id, exchanges, at) or 0
  if events then history(id, m, events, raw, fields) end
  local was, had_none = m[STATE], m[KIND] == 0
  local live = m[OWNER] ~= '' and m[UNTIL] > now
  local was_queued = m[Z] ~= 0
  local was_slot = m[SLOT]
  m[REV], m[NONCE], m[KILLS] = m[REV] + 1, c[4], c[14]
  state(id, m, c[6])
  m[KIND], m[DUE], m[DIES], m[PRIO] = c[7], c[8], c[9], c[10]
  local keep
  if c[12] >= 0 then keep = c[12] == 1 and m[KIND] ~= 0
  -- An ended lease of a job that had nothing to do tells of no killed worker.
  else keep = live or (m[OWNER] ~= '' and was_queued) end
  local freed
  if keep then
    freed = slot(id, m, (c[11] == 1 or (was_slot == 1 and m[KIND] == 1)) and 1 or 0)
    if m[KIND] == 0 then leave(id, m)
    -- Under a lease it stands there already, at the lease's end.
    elseif m[Z] ~= GOING then enter(id, m, GOING, m[UNTIL], m[UNTIL]) end
  else
    freed = slot(id, m, c[11])
    unlease(id, m)
  end
  if c[13] >= 0 then
    put(P .. 'fin', id, c[13])
    -- Of a job that ended the newest moves too.
    if raw > 0 or call('HEXISTS', jkey(id), 'x') == 1 then put(P .. 'xq', id, now) end
  elseif had_none then take(P .. 'fin', id) end
  if c[19] then add(id, c[19]) end
  local relieved = 0
  local set_aside = c[18]
  -- What a fresh start under a kept lease has set aside stays.
  if not (m[SLOT] == 1 and m[KIND] == 1) and set_aside[1] ~= 0 and reserve(id, m, set_aside) then relieved = 1 end
  m[QUIET] = c[20] or ''
  if not c[20] then
    fields[#fields + 1] = 'h'
    fields[#fields + 1] = c[5]
  end
  save_all(id, m, fields)
  -- A poll that brought nothing new is nothing to watch.
  if events or m[STATE] ~= was then tell(id, m) end
  return {1, m[REV], m[SEQ], freed and m[CONN] or '', relieved, was_slot == 0 and m[SLOT] or 0}
end
local out, commits, ids = {}, {}, {}
local a = 2
while a <= #ARGV do
  local c = cmsgpack.unpack(ARGV[a])
  commits[#commits + 1], ids[#ids + 1] = {c, a}, c[1]
  a = a + 1 + (c[16] and #c[16] or 0)
end
fetch(ids)
for _, commit in ipairs(commits) do
  local c, m = commit[1], load(commit[1][1])
  if not m then
    out[#out + 1] = {3}
  elseif m[NONCE] == c[4] and m[REV] == c[3] + 1 then
    -- The same commit once more: its answer was lost.
    out[#out + 1] = {1, m[REV], m[SEQ], '', 0, 0}
  elseif c[2] >= 0 and (m[FENCE] ~= c[2] or m[OWNER] == '') then
    out[#out + 1] = {3}
  elseif m[REV] ~= c[3] then
    out[#out + 1] = {2, with_quiet(call('HGET', jkey(c[1]), 'h'), m), m[REV], m[SEQ], m[KILLS]}
  elseif c[12] == -2 then
    out[#out + 1] = {4}
  else
    local was = m[STATE]
    local fine, answer = pcall(apply, c, m, commit[2])
    if not fine then
      discard(c[1])
      move(m[CONN], m[STATE], -1)
      move(m[CONN], was, 1)
      answer = {5, type(answer) == 'table' and answer.err or tostring(answer)}
    end
    out[#out + 1] = answer
  end
end
done()
return {now, woke, out}
