-- ARGV[2] is {id, fence, id, fence, ...}. Answers whose places came free: {id, connector, ...}.
local C = cmsgpack.unpack(ARGV[2])
local freed = {}
for i = 1, #C, 2 do
  local conn = hand_back(C[i], C[i + 1])
  if conn then
    freed[#freed + 1] = C[i]
    freed[#freed + 1] = conn
  end
end
done()
return {now, woke, freed}
