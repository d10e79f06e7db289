-- ARGV[2] is {id, event, mark}. Adds a line to a job's history outside a transition: its revision stays. `mark` keeps the same line
-- from being written twice when the call is sent again.
local C = cmsgpack.unpack(ARGV[2])
local m = load(C[1])
if not m then return {now, 0, 0} end
if call('HGET', jkey(C[1]), 'k') == C[3] then return {now, 0, 1} end
local fields = {'k', C[3]}
history(C[1], m, {C[2]}, 0, fields)
save_all(C[1], m, fields)
tell(C[1], m)
done()
return {now, 0, 1}
