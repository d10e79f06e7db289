-- Exchanges' texts were written into a segment: puts pointers in their place. ARGV[2] is {from when on it is too late, job, last
-- number looked at, how many, ...}; four arguments an exchange follow: number, size of its packed text, what commit.lua wrote about
-- it, pointer. Only what is as it was read is replaced. A job whose texts have all moved leaves `xq`, the line of those that have
-- some to move. Answers {exchanges, bytes}, or {-1, 0} where it is too late.
local C = cmsgpack.unpack(ARGV[2])
if now >= C[1] then return {now, 0, {-1, 0}} end
local segment, exchanges, bytes, a = nil, 0, 0, 3
-- One exchange; answers false where its text is there and not as it was read.
local function point(key, x, n, size, about, pointer)
  local is = call('HSTRLEN', key, 'y' .. n)
  if is == 0 then return true end
  if is ~= size or call('HGET', key, 'x' .. n) ~= about then return false end
  call('HSET', key, 'z' .. n, pointer)
  call('HDEL', key, 'y' .. n)
  -- What is said of the newest stays: an equal one after it is counted there.
  if tonumber(n) ~= x[1] then call('HDEL', key, 'x' .. n) end
  segment = string.sub(pointer, 1, 10)
  x[4], bytes, exchanges = x[4] - size, bytes + size, exchanges + 1
  return true
end
for i = 2, #C, 3 do
  local id, top, many = C[i], C[i + 1], C[i + 2]
  local key = jkey(id)
  local x = call('HGET', key, 'x')
  if x then
    x = cmsgpack.unpack(x)
    x[7] = x[7] or 0
    local before, all = exchanges, true
    for at = a, a + 4 * (many - 1), 4 do
      all = point(key, x, ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]) and all
    end
    if exchanges > before then
      local of = call('HGET', key, 'zs')
      of = of and cmsgpack.unpack(of) or {}
      of[segment] = (of[segment] or 0) + exchanges - before
      call('HSET', key, 'zs', cmsgpack.pack(of))
    end
    if all then x[7] = math.max(x[7], top) end
    call('HSET', key, 'x', cmsgpack.pack(x))
    local more = x[1] - 1 > x[7] or (x[1] > x[7] and call('ZSCORE', P .. 'fin', id))
    put(P .. 'xq', id, more and now or false)
  else
    take(P .. 'xq', id)
  end
  a = a + 4 * many
end
if exchanges > 0 then
  call('HINCRBY', P .. 'sg', segment, exchanges)
  call('ZREM', P .. 'sz', segment)
  call('HINCRBY', KEYS[1], 'xb', -bytes)
end
flush()
return {now, 0, {exchanges, bytes}}
