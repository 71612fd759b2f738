-- A node that has no marker of this life of it begins to come back: from now on it is timed here.
--
-- KEYS: 1 the marker · 2 the beginning
-- ARGV: 1 the server's run_id · 2 a new incarnation, which starts with that · 3 "first" or "again"
-- Answers {1, marker}: it votes already; or {0, incarnation, ms since this began, "first" or "again", µs of
-- its clock}.

local id = ARGV[1]
local m = redis.call('GET', KEYS[1])
if m and string.sub(m, 1, #id) == id then return { 1, m } end
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local inc, started, how = string.match(redis.call('GET', KEYS[2]) or '', '^([^\031]*)\031(%d+)\031(%a+)$')
if not inc or string.sub(inc, 1, #id) ~= id then
  inc, started, how = ARGV[2], string.format('%.0f', now), ARGV[3]
end
if ARGV[3] == 'first' then how = 'first' end
redis.call('SET', KEYS[2], inc .. '\031' .. started .. '\031' .. how)
return { 0, inc, now - tonumber(started), how, time[1] * 1000000 + time[2] }
