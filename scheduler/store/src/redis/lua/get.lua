-- ARGV[2..]: ids. Answers for each {rev, seq, kills, head, body, usage lines, path, {artifact, ...}}, or nothing.
local out = {}
for a = 2, #ARGV do
  local key = jkey(ARGV[a])
  local f = call('HMGET', key, 'm', 'h', 'b', 'u', 'al')
  if f[1] then
    local m = cmsgpack.unpack(f[1])
    local artifacts = {}
    if f[5] then
      for _, id in ipairs(cmsgpack.unpack(f[5])) do
        artifacts[#artifacts + 1] = call('HGET', key, 'a:' .. id)
      end
    end
    out[#out + 1] = {m[REV], m[SEQ], m[KILLS], f[2], f[3], f[4] or '', artifacts}
  else
    out[#out + 1] = {}
  end
end
return {now, 0, out}
