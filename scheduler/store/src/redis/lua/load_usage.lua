-- ARGV[2] is {ledger lines as a commit gives them, job, its lines as text}: lines of another store's ledger, which outlive
-- their job.
local C = cmsgpack.unpack(ARGV[2])
ledger(C[1])
if call('EXISTS', jkey(C[2])) == 1 then call('HSET', jkey(C[2]), 'u', C[3]) end
return {now, 0}
