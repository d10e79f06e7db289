-- ARGV[2..]: ids. Answers for each {rev, seq, kills, head, body, usage lines, path, {artifact, ...}}, or nothing.
local out = {}
fetch(ids_from(2))
for a = 2, #ARGV do
  local key = jkey(ARGV[a])
  local m = load(ARGV[a])
  if m then
    local f = call('HMGET', key, 'h', 'b', 'u', 'al')
    local artifacts = {}
    if f[4] then
      for _, id in ipairs(cmsgpack.unpack(f[4])) do
        artifacts[#artifacts + 1] = call('HGET', key, 'a:' .. id)
      end
    end
    out[#out + 1] = {m[REV], m[SEQ], m[KILLS], with_quiet(f[1], m), f[2], f[3] or '', artifacts}
  else
    out[#out + 1] = {}
  end
end
return {now, 0, out}
