-- End the holder's lease on one node by force, raise the counter, and leave an audit record.
--
-- KEYS: 1 the lock · 2 its queue · 3 the counters · 4 the marker · 5 the list of audit records
-- ARGV: 1 the stripe · 2 the incarnation · 3 the counter is at least this much afterwards
--       4 who did it, and to which lock; empty: only raise · 5 how many records are kept
-- Answers {1 if somebody held it, the counter}; or the error HFOUT.

local K, Q = KEYS[1], KEYS[2]
--@include redlock_wake.lua

local m = redis.call('GET', KEYS[4])
if not m or string.sub(m, 1, #ARGV[2]) ~= ARGV[2] then return redis.error_reply('HFOUT it does not vote in this life') end
local counter = tonumber(redis.call('HGET', KEYS[3], ARGV[1]) or string.match(m, '^[^\031]*\031%d+\031(%d+)'))
if ARGV[4] == '' then
  counter = math.max(counter, tonumber(ARGV[3]))
else
  counter = counter + 1
end
redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', counter))
local held = 0
if ARGV[4] ~= '' then
  held = redis.call('DEL', K)
  local time = redis.call('TIME')
  redis.call('LPUSH', KEYS[5], time[1] .. '.' .. string.sub('00000' .. time[2], -6) .. ' ' .. ARGV[4])
  redis.call('LTRIM', KEYS[5], 0, ARGV[5] - 1)
  wake()
end
return { held, counter }
