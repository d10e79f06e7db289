-- ARGV[2] is {connector, requests}: counts them.
local C = cmsgpack.unpack(ARGV[2])
meter(C[1], C[2])
return {now, 0}
