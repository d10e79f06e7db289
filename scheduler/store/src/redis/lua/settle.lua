-- ARGV[2] is {most}: puts loaded events into the shard's stream, in the order of their positions. Answers how many are left.
local most = cmsgpack.unpack(ARGV[2])[1]
local flat = call('ZRANGE', P .. 'evl', 0, most - 1, 'WITHSCORES')
local list = {}
for i = 1, #flat, 2 do
  local e, pos = cmsgpack.unpack(flat[i]), tonumber(flat[i + 1])
  list[#list + 1] = {pos, e[1], tonumber(e[2]), e[3]}
  note('pos', pos)
end
write_stream(list)
flush()
if #flat > 0 then call('ZREMRANGEBYRANK', P .. 'evl', 0, #flat / 2 - 1) end
return {now, 0, call('ZCARD', P .. 'evl')}
