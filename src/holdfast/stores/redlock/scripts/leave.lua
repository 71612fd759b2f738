-- Takes a waiter off this node. If the lock is free here, that waiter may have been the one that was told of it.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 the owner id · 2 ms for which a request to wait that arrives later is refused; nothing: not at all
-- Returns 1 if the owner waited here, otherwise 0.

local K, Q = KEYS[1], KEYS[2]
--@include wake.lua

local mine = K .. ':w:' .. ARGV[1]
local gone = redis.call('DEL', mine)
if ARGV[2] then redis.call('SET', mine, 'left', 'PX', ARGV[2]) end
redis.call('LREM', Q, 0, ARGV[1])
if redis.call('EXISTS', Q) == 0 then
  redis.call('DEL', K .. ':b')
elseif redis.call('EXISTS', K) == 0 then
  wake()
end
return gone
