-- ARGV[2..]: an event of another store each, {job, seq, position, rest of its text}. A job's events come out of the order of the
-- shard's: they wait in `evl` by their positions until settle.lua puts them into the stream. Answers jobs that are not there.
local missing = {}
for a = 2, #ARGV do
  local e = cmsgpack.unpack(ARGV[a])
  local m = load(e[1])
  if m then
    call('HSET', jkey(e[1]), 'e' .. e[2], e[3] .. ',' .. e[4])
    call('ZADD', P .. 'evl', e[3], cmsgpack.pack({e[1], e[2], m[TENANT]}))
  else
    missing[#missing + 1] = e[1]
  end
end
-- The stream holds the newest only.
local over = call('ZCARD', P .. 'evl') - 200000
if over > 0 then
  local last = call('ZRANGE', P .. 'evl', over - 1, over - 1, 'WITHSCORES')[2]
  call('HSET', KEYS[1], 'pos', string.format('%.0f', math.max(tonumber(last), tonumber(call('HGET', KEYS[1], 'pos') or 0))))
  call('ZREMRANGEBYRANK', P .. 'evl', 0, over - 1)
end
return {now, 0, missing}
