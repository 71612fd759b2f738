-- Gives back a hold of a lock that several may hold, on one node; as free.lua.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 the slot, "r" or "w" · 2 the owner id · 3 and 4 as 2 and 3 of free.lua
-- Returns 1 if this owner held the lock here, otherwise 0.

local K, Q, mode, owner, mark, quiet = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '0'
--@include shared.lua
--@include wake_shared.lua

local field = mode == 'r' and 'r' .. owner or mode
local freed = lasting(field, 'rl1\031' .. owner .. '\031') and 1 or 0
if freed == 0 and mode == 'w' then -- it may have become a reader's, though its client was not told
  field = 'r' .. owner
  freed = lasting(field, 'rl1\031' .. owner .. '\031') and 1 or 0
end
if freed == 1 then
  if redis.call('ZCARD', E) == 1 then
    redis.call('DEL', K, H, E, M)
  else
    drop(field)
  end
end
if not quiet then
  -- Readers that had to make way have their turn before the next writer.
  if mode == 'w' and (freed == 1 or redis.call('GET', I) == string.match(owner, '^[^~]*')) then redis.call('DEL', I) end
  if redis.call('EXISTS', Q) == 1 then wake() end
end
if mark and mark ~= '0' then redis.call('SET', K .. ':x:' .. owner, '', 'PX', mark) end
return freed
