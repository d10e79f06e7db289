-- Whether this is the server that the shard was written on. One that was started anew, or took another's place, may have forgotten
-- its newest second: for quiet_ms from now (0: it cannot) no fresh start is handed out. Answers until when, and when it was last
-- seen to come back.
local function same_server(quiet_ms)
  if quiet_ms == 0 then return 0, 0 end
  local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')
  local was = call('HMGET', KEYS[1], 'run', 'returned', 'quiet', 'pos')
  if was[1] == run then return tonumber(was[3]), tonumber(was[2]) end
  -- Where nothing ever happened the store is being founded.
  local quiet_until = (was[1] or was[4]) and now + quiet_ms or 0
  call('HSET', KEYS[1], 'run', run, 'returned', now, 'quiet', quiet_until)
  return quiet_until, now
end
