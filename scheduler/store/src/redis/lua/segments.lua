-- Segments of exchanges: `sg` counts a segment's exchanges that jobs point to, `sz` holds those that none points to any more,
-- at the time since when. A job's field `zs` says how many of its exchanges lie in which segment.
local function unpoint(segment, many)
  if call('HINCRBY', P .. 'sg', segment, -many) <= 0 then
    call('HDEL', P .. 'sg', segment)
    call('ZADD', P .. 'sz', now, segment)
  end
end
-- One pointer of a job is gone. It begins with its segment.
local function drop_pointer(key, pointer)
  local segment = string.sub(pointer, 1, 10)
  local of = call('HGET', key, 'zs')
  of = of and cmsgpack.unpack(of) or {}
  of[segment] = (of[segment] or 1) - 1
  if of[segment] <= 0 then of[segment] = nil end
  if next(of) then call('HSET', key, 'zs', cmsgpack.pack(of)) else call('HDEL', key, 'zs') end
  unpoint(segment, 1)
end
