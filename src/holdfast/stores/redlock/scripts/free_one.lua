-- Included by free.lua and free_batch.lua: gives back one hold, whatever was replied before.
--
-- Needs the locals call, K (the lock), owner, and quiet (true: wake no waiter). Makes the local freed.

local freed = 0
local start = 'rl1\031' .. owner .. '\031'
local v = call('GET', K)
if v and string.sub(v, 1, #start) == start then freed = 1 end
if quiet then
  if freed == 1 then call('DEL', K) end
elseif freed == 1 and call('DEL', K, K .. ':b') == 2 or freed == 0 and call('DEL', K .. ':b') == 1 then
  -- Also where the lease is not held, because a round that failed was here first: it is awaited here.
  local Q = K .. ':q'
--@include wake.lua
  wake()
end
