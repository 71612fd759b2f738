-- Tells a node that votes of another node's new life, and returns the highest counter. After this, a client that
-- counts both this node and an earlier life of the other learns of it.
--
-- KEYS: 1 the marker · 2 the counters in use
-- ARGV: 1 the incarnation of this node · 2 the name of the other · 3 its life; 0: only read
-- Returns {the highest counter, the life known before, the lives known of all nodes}; or the error HFOUT.

local m = redis.call('GET', KEYS[1])
if not m or string.sub(m, 1, #ARGV[1]) ~= ARGV[1] then return redis.error_reply('HFOUT it does not vote in this incarnation') end
local rest, known = string.match(m, '^(.*\031)([^\031]*)$')
local life, before, parts = tonumber(ARGV[3]), 0, {}
for name, number in string.gmatch(known, '([^,=]+)=(%d+)') do
  if name == ARGV[2] then
    before = tonumber(number)
  else
    parts[#parts + 1] = name .. '=' .. number
  end
end
if life > before then
  parts[#parts + 1] = ARGV[2] .. '=' .. ARGV[3]
  redis.call('SET', KEYS[1], rest .. table.concat(parts, ','))
end
--@include highest_one.lua
return { highest, before, known }
