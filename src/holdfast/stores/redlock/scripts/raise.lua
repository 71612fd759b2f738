-- Phase 2 of a grant, on one node: raises the counter to the token, but only if our hold is the very one
-- that answered phase 1: same owner *and* same beginning. A hold that was lost and made again by a
-- repeated request has another beginning.
--
-- KEYS: 1 the lock · 2 its counter · 3 the marker
-- ARGV: 1 the token · 2 what the counter was before the hold began · 3 the incarnation · 4 the owner id
-- Returns 1, or {1, known}; 0: this is not that hold any more; or the error HFOUT.

local K, N, inc = KEYS[1], KEYS[2], ARGV[3]
local m = redis.call('GET', KEYS[3])
if not m or string.sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
local v = redis.call('GET', K)
local start = 'rl1\031' .. ARGV[4] .. '\031' .. ARGV[2] .. '\031'
if not v or string.sub(v, 1, #start) ~= start then return 0 end
if tonumber(redis.call('GET', N)) < tonumber(ARGV[1]) then redis.call('SET', N, ARGV[1]) end
redis.call('SET', K, start .. ARGV[1] .. string.match(v, '^%d*(.*)$', #start + 1), 'KEEPTTL')
if string.sub(m, -1) == '\031' then return 1 end
return { 1, string.match(m, '[^\031]*$') }
