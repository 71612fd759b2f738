-- Ends the holder's lease on one node by force, raises the counter, and leaves an audit record.
--
-- KEYS: 1 the lock · 2 its queue · 3 its counter · 4 the marker · 5 the list of audit records
--       6 the counters in use
-- ARGV: 1 the incarnation · 2 the counter is at least this much afterwards
--       3 who did it, and to which lock; empty: only raise · 4 how many records are kept
-- Returns {1 if the lock was held, the counter}; or the error HFOUT.

local K, Q = KEYS[1], KEYS[2]
--@include shared.lua

local m = redis.call('GET', KEYS[4])
if not m or string.sub(m, 1, #ARGV[1]) ~= ARGV[1] then return redis.error_reply('HFOUT it does not vote in this incarnation') end
local counter = redis.call('GET', KEYS[3])
if not counter then
  counter = string.match(m, '^[^\031]*\031%d+\031(%d+)')
  redis.call('RPUSH', KEYS[6], KEYS[3])
end
counter = tonumber(counter)
if ARGV[3] == '' then
  counter = math.max(counter, tonumber(ARGV[2]))
else
  counter = counter + 1
end
redis.call('SET', KEYS[3], string.format('%.0f', counter))
local held = 0
if ARGV[3] ~= '' then
  local shared = is_held()
  held = redis.call('DEL', K)
  redis.call('DEL', H, E, M, I)
  local time = redis.call('TIME')
  redis.call('LPUSH', KEYS[5], time[1] .. '.' .. string.sub('00000' .. time[2], -6) .. ' ' .. ARGV[3])
  redis.call('LTRIM', KEYS[5], 0, ARGV[4] - 1)
  if shared then
--@include wake_shared.lua
    wake()
  else
--@include wake.lua
    wake()
  end
end
return { held, counter }
