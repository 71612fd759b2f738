-- Takes a waiter for a lock that several may hold off this node, and its claim to keep new readers off; as leave.lua.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 the owner id · 2 as in leave.lua
-- Returns 1 if the owner waited here, otherwise 0.

local K, Q, owner = KEYS[1], KEYS[2], ARGV[1]
--@include shared.lua
--@include wake_shared.lua

local mine = K .. ':w:' .. owner
local gone = 0
if redis.call('GET', mine) ~= 'left' then gone = redis.call('DEL', mine) end -- else a request may still come
if ARGV[2] then redis.call('SET', mine, 'left', 'PX', ARGV[2]) end
redis.call('LREM', Q, 0, owner)
if redis.call('GET', I) == owner then redis.call('DEL', I) end
if redis.call('EXISTS', Q) == 1 then wake() end
return gone
