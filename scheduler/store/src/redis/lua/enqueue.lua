-- ARGV[2] is {connector or '', text, delay_ms}.
local C = cmsgpack.unpack(ARGV[2])
chore(C[1], C[2], now + C[3])
done()
return {now, woke}
