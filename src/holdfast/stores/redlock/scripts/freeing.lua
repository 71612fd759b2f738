-- Included by redlock_free.lua and redlock_frees.lua: give back one hold, whatever was answered before.
--
-- Needs the locals call, K (the lock), owner, and quiet (whether nobody is to be woken). Makes the local freed.

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
