-- Lets the node vote from now on, if it is still in the incarnation that began to come back.
--
-- KEYS: 1 the marker · 2 the beginning · 3 the counters in use
-- ARGV: 1 the server's run_id · 2 the incarnation · 3 its life · 4 where its counters begin;
--       0: at the clock, in µs · 5 the longest ttl in ms · 6 the members · 7 the lives of other nodes that it knows of
--       8 the roster of the first start that this is a part of; empty: the node comes back
-- Returns {1, marker}: the node votes; or {0}: another incarnation, life or roster has been noted since.

local id, inc = ARGV[1], ARGV[2]
local m = redis.call('GET', KEYS[1])
if m and string.sub(m, 1, #id) == id then return { 1, m } end
local begun, life, roster = string.match(
  redis.call('GET', KEYS[2]) or '', '^([^\031]*)\031.*\031(%d+)\031(%x*)$')
if begun ~= inc then return { 0 } end
if life ~= '0' and life ~= ARGV[3] then return { 0 } end -- others know it by that number already
if ARGV[8] ~= '' and roster ~= ARGV[8] then return { 0 } end
local base = ARGV[4]
if base == '0' then
  local time = redis.call('TIME')
  base = time[1] .. string.sub('00000' .. time[2], -6)
end
m = table.concat({ inc, ARGV[3], base, ARGV[5], ARGV[6], ARGV[8], ARGV[7] }, '\031')
for _, counter in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do redis.call('DEL', counter) end
redis.call('DEL', KEYS[3], KEYS[2])
redis.call('SET', KEYS[1], m)
return { 1, m }
