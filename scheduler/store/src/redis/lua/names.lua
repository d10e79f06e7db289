-- Names of numbers. Each is put in its place before a script is sent: a local costs every call, and every use of it.
NEVER = 9007199254740000
-- A job's moving numbers. `m` holds those of all jobs of the shard, so that a script reads and writes many by one command.
REV = 1
SEQ = 2
STATE = 3
SLOT = 4
FENCE = 5
OWNER = 6
UNTIL = 7
Z = 8
KIND = 9
DUE = 10
DIES = 11
PRIO = 12
KILLS = 13
CONN = 14
TENANT = 15
LAST = 16
NONCE = 17
CREATED = 18
-- 1 where the job has an estimate (its field `es`), and where something is set aside for it (its field `rv`).
PRICED = 19
HELD = 20
-- What quiet polls have changed of the job's head since it was written (quiet.rs); empty or nil where nothing was.
QUIET = 21
-- Lines of the queue (Z): going (and leased, by the lease's end), outputs, fresh, later, placed. KIND: 1 a fresh start,
-- 2 outputs, 3 any other step, 0 none.
GOING = 1
OUTPUTS = 2
FRESH = 3
LATER = 4
PLACED = 5
