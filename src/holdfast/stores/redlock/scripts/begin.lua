-- Notes that a node without a marker of its present run begins to come back: from now on it is timed here. All
-- clients that help it use one incarnation and one life: the first that was proposed.
--
-- KEYS: 1 the marker · 2 the beginning
-- ARGV: 1 the server's run_id · 2 a new incarnation, which starts with that · 3 "first" or "again"
--       4 the life that it should have; 0: none yet · 5 the roster of a first start; empty: none
-- Returns {1, marker}: the node votes already; or {0, incarnation, ms since this began, "first" or "again", µs of
-- its clock, its life or 0, the roster or nothing}, of each the first that was proposed.

local id = ARGV[1]
local m = redis.call('GET', KEYS[1])
if m and string.sub(m, 1, #id) == id then return { 1, m } end
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local inc, started, how, life, roster = string.match(
  redis.call('GET', KEYS[2]) or '', '^([^\031]*)\031(%d+)\031(%a+)\031(%d+)\031(%x*)$')
if not inc or string.sub(inc, 1, #id) ~= id then
  inc, started, how, life, roster = ARGV[2], string.format('%.0f', now), ARGV[3], '0', ''
end
if ARGV[3] == 'first' then how = 'first' end
if life == '0' then life = ARGV[4] end
if roster == '' then roster = ARGV[5] end
redis.call('SET', KEYS[2], table.concat({ inc, started, how, life, roster }, '\031'))
return { 0, inc, now - tonumber(started), how, time[1] * 1000000 + time[2], tonumber(life), roster }
