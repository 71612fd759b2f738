-- Registers a waiter for a lock that several may hold, or takes its heartbeat; as wait.lua.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 and 2 as in wait.lua · 3 "s", "r" or "w" · 4 the capacity · 5 the channel, or nothing · 6 the owner id
-- Returns as wait.lua does; the ms are those until this waiter may have the lock.

local K, Q, channel, owner = KEYS[1], KEYS[2], ARGV[5], ARGV[6]
--@include shared.lua

local left = math.max(0, busy_for(ARGV[3], ARGV[4]))
local mine = K .. ':w:' .. owner
if channel == '' then
  if redis.call('PEXPIRE', mine, ARGV[1]) == 1 then return left end
  return -1 - left
end
--@include enqueue.lua
return left
