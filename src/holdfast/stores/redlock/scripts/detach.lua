-- Lets a hold on one node last for exactly so long from now. Knows only the very hold.
--
-- KEYS: 1 the lock · 2 the marker
-- ARGV: 1 ttl in ms · 2 the slot, "r" or "w"; nothing: a plain lock · 3 the incarnation · 4 what the counter was before the
--       hold began · 5 the owner id
-- Returns 1; 0: this is not that hold any more; or the error HFOUT.

local K, ttl, mode, inc = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local m = redis.call('GET', KEYS[2])
if not m or string.sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
local start = 'rl1\031' .. ARGV[5] .. '\031' .. ARGV[4] .. '\031'
if mode == '' then
  local v = redis.call('GET', K)
  if not v or string.sub(v, 1, #start) ~= start then return 0 end
  return redis.call('PEXPIRE', K, ttl)
end
--@include shared.lua
local field = mode == 'r' and 'r' .. ARGV[5] or mode
if not lasting(field, start) then return 0 end
if not last(field, ttl) then return redis.error_reply('OOM no memory is left') end
return 1
