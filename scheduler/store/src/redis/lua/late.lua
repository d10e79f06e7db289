-- ARGV[2] is {connectors, tenants}: of a connector 1 says that no start may run, 8 that nothing may; of `connector<US>tenant` that
-- no start of its may. Answers when the oldest step that could run was due, or -1.
local C = cmsgpack.unpack(ARGV[2])
local held, tenants = C[1], C[2]
local oldest = NEVER
local function see(at) if at and tonumber(at) < oldest then oldest = tonumber(at) end end
see(call('ZRANGE', P .. 'l', 0, 0, 'WITHSCORES')[2])
local function starts_of(key)
  -- One look for each priority: the first of each is its oldest.
  local from = '-inf'
  for _ = 1, 201 do
    local one = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not one[2] then return end
    local score = tonumber(one[2])
    local level = math.floor(score / 4e12)
    see(score - level * 4e12)
    from = string.format('%.0f', (level + 1) * 4e12)
  end
end
for _, conn in ipairs(call('SMEMBERS', P .. 'cs')) do
  local h = call('HGET', P .. 'hold', conn)
  if h ~= 'p' and held[conn] ~= 8 then
    see(call('ZRANGE', P .. 'g:' .. conn, 0, 0, 'WITHSCORES')[2])
    for _, id in ipairs(call('ZRANGE', P .. 'o:' .. conn, 0, 99)) do
      local m = load(id)
      if m then see(m[DUE]) end
    end
    if not h or (string.sub(h, 1, 1) == 'c' and tonumber(string.sub(h, 3)) <= now) then
      starts_of(P .. 'p:' .. conn)
      if not held[conn] then
        for _, tenant in ipairs(call('ZRANGE', P .. 'ft:' .. conn, 0, 99)) do
          if not tenants[conn .. '\31' .. tenant] then starts_of(P .. 'f:' .. conn .. ':' .. tenant) end
        end
      end
    end
  end
end
return {now, 0, oldest <= now and now - oldest or -1}
