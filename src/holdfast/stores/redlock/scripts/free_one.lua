-- Included by free.lua and free_batch.lua: gives back one hold, whatever was replied before.
--
-- Needs the locals call, K (the lock), owner, and quiet (true: wake no waiter). Makes the local freed.

local freed = 0
local start = 'rl1\031' .. owner .. '\031'
local v = call('GET', K)
if v and string.sub(v, 1, #start) == start then
  freed = 1
  if quiet then
    call('DEL', K)
  elseif call('DEL', K, K .. ':b') == 2 then
    local Q = K .. ':q'
--@include wake.lua
    wake()
  end
end
