-- A connector's gate: KEYS[1] is a hash of the jobs that hold a place at the vendor, fleet-wide, job to `<mark>:<when>`;
-- KEYS[2] holds its token buckets (limits::Bucket, the same whole numbers). ARGV: now (0: the server's), places (-1: no bound),
-- start rate, request rate (parts a millisecond, -1: no bound), mark, ticket (-1: no open circuit holds starts; else from when on one
-- may go to try the vendor, once for each such time), how long a try has to tell, then pairs of id and kind (1 a fresh start, 4 one
-- that has its place).
-- Answers {ids let through, when a start may pass next, when a request may, 1 where places were lacking, when one may try next}; times
-- are -1 for now.
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local places, mark = tonumber(ARGV[2]), ARGV[5]
local PARTS, SLACK = 60000000, 100
local function bucket(name, rate)
  if rate < 0 then return nil end
  local was = redis.call('HMGET', KEYS[2], name .. 'l', name .. 'a')
  local cap = PARTS + rate * SLACK
  local b = {name = name, rate = rate, level = cap, at = now}
  if was[1] then
    local at = tonumber(was[2])
    b.level = math.min(tonumber(was[1]) + math.max(now - at, 0) * rate, cap)
    b.at = math.max(now, at)
  end
  return b
end
local function may(b) return not b or b.level >= PARTS end
local function spend(b)
  if b then b.level, b.dirty = b.level - PARTS, true end
end
local function keep(b)
  if b and b.dirty then
    redis.call('HSET', KEYS[2], b.name .. 'l', string.format('%.0f', b.level), b.name .. 'a', string.format('%.0f', b.at))
  end
end
local function next_at(b)
  if may(b) then return -1 end
  if b.rate == 0 then return 9007199254740000 end
  return b.at + math.ceil((PARTS - b.level) / b.rate)
end
-- The last try stands in `tt`, its ticket, and `ta`, when it went.
local ticket, tries_from = tonumber(ARGV[6]), -1
if ticket >= 0 then
  local last = redis.call('HMGET', KEYS[2], 'tt', 'ta')
  tries_from = tonumber(last[1] or nil) == ticket and tonumber(last[2]) + tonumber(ARGV[7]) or ticket
end
local function tries()
  if ticket < 0 then return end
  redis.call('HSET', KEYS[2], 'tt', string.format('%.0f', ticket), 'ta', string.format('%.0f', now))
  tries_from = now + tonumber(ARGV[7])
end
local starts, requests = bucket('s', tonumber(ARGV[3])), bucket('r', tonumber(ARGV[4]))
local held = places >= 0 and redis.call('HLEN', KEYS[1]) or 0
local through, lacking = {}, 0
for i = 8, #ARGV, 2 do
  local id = ARGV[i]
  if not may(requests) then break end
  if ARGV[i + 1] ~= '0' and tries_from > now then
    -- Another tries the vendor, or it is too early to.
  elseif ARGV[i + 1] ~= '1' then
    if ARGV[i + 1] == '4' then tries() end
    spend(requests)
    through[#through + 1] = id
  elseif may(starts) then
    local was = places >= 0 and redis.call('HGET', KEYS[1], id)
    -- Another claim is about to take this very job: it is that one's, unless it never came back.
    local free = not was or now - tonumber(string.match(was, ':(%d+)$')) > 10000
    if free and not was and places >= 0 and held >= places then
      free, lacking = false, 1
    end
    if free then
      if places >= 0 then
        if not was then held = held + 1 end
        redis.call('HSET', KEYS[1], id, mark .. ':' .. string.format('%.0f', now))
      end
      tries()
      spend(starts)
      spend(requests)
      through[#through + 1] = id
    end
  end
end
keep(starts)
keep(requests)
return {through, next_at(starts), next_at(requests), lacking, tries_from > now and tries_from or -1}
