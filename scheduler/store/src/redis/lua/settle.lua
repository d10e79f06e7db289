-- ARGV[2] is {most}: puts loaded events into the shard's stream, in the order of their positions. Answers how many are left.
local most = cmsgpack.unpack(ARGV[2])[1]
local flat = call('ZRANGE', P .. 'evl', 0, most - 1, 'WITHSCORES')
for i = 1, #flat, 2 do
  local e = cmsgpack.unpack(flat[i])
  local pos = string.format('%.0f', tonumber(flat[i + 1]))
  call('XADD', P .. 'ev', 'MAXLEN', '~', 200000, pos .. '-1', 'j', e[1], 's', e[2], 't', e[3])
  call('HSET', KEYS[1], 'pos', pos)
end
if #flat > 0 then call('ZREMRANGEBYRANK', P .. 'evl', 0, #flat / 2 - 1) end
return {now, 0, call('ZCARD', P .. 'evl')}
