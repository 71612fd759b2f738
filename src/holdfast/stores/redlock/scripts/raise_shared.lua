-- Phase 2 of a grant of a lock that several may hold, on one node; as raise.lua.
--
-- KEYS: 1 the lock · 2 its counter · 3 the marker
-- ARGV: 1 the slot, "r" or "w" · 2 to 5 as 1 to 4 of raise.lua
-- Returns as raise.lua does.

local K, N, mode, token, inc = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[4]
local m = redis.call('GET', KEYS[3])
if not m or string.sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
--@include shared.lua

local start = 'rl1\031' .. ARGV[5] .. '\031' .. ARGV[3] .. '\031'
local field = mode == 'r' and 'r' .. ARGV[5] or mode
local left, v = lasting(field, start)
if not left then return 0 end
if tonumber(redis.call('GET', N)) < tonumber(token) then redis.call('SET', N, token) end
redis.call('HSET', H, field, start .. token .. string.match(v, '^%d*(.*)$', #start + 1))
if string.sub(m, -1) == '\031' then return 1 end
return { 1, string.match(m, '[^\031]*$') }
