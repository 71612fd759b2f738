-- Gives back whatever an owner holds on one node, in whichever round, and refuses its requests that arrive later.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 the owner id of the attempt · 2 ms for which a request that arrives later is refused
-- Returns 1 if the owner held the lock here, otherwise 0.

local K, Q, owner = KEYS[1], KEYS[2], ARGV[1]
--@include shared.lua

local freed = 0
local v = redis.call('GET', K)

local function is_theirs(text)
  return string.match(text, '^rl1\031([^~\031]*)') == owner
end

if v and string.sub(v, 1, 4) == 'rl1\031' then
  if is_theirs(v) then
--@include wake.lua
    freed = redis.call('DEL', K)
    wake()
  end
else
--@include wake_shared.lua
  is_held()
  local gone = 0
  local flat = redis.call('HGETALL', H)
  for i = 1, #flat, 2 do
    if is_theirs(flat[i + 1]) then
      drop(flat[i])
      freed = 1
      if flat[i] == 'w' then redis.call('DEL', I) end
    end
  end
  if redis.call('GET', I) == owner then gone = redis.call('DEL', I) end
  if freed + gone > 0 then wake() end
end
redis.call('SET', K .. ':x:' .. owner, '', 'PX', ARGV[2])
return freed
