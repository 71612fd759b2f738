-- Registers a waiter, which this node wakes when the lock is given back here; or takes its heartbeat.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 ms without a heartbeat after which the waiter is forgotten · 2 the request
--       3 the channel; empty: the heartbeat of a waiter that is known already · 4 the owner id
-- Returns ms: the waiter will be woken, the lock is held here for that long (0: it is free); or -1 - ms: the
-- waiter is not known here, or has left.

local K, Q, channel, owner = KEYS[1], KEYS[2], ARGV[3], ARGV[4]
local left = math.max(0, redis.call('PTTL', K))
local mine = K .. ':w:' .. owner
if channel == '' then
  if redis.call('PEXPIRE', mine, ARGV[1]) == 1 then return left end
  return -1 - left
end
--@include enqueue.lua
redis.call('SET', K .. ':b', '', 'PX', 3600000) -- see wake.lua
return left
