-- Returns a lock as it stands. Changes nothing.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- Returns {value of the lock key, its ms, the counter, holders, waiters, now in ms}, where holders and waiters
-- are lists of owner, text, ms, owner, text, ms, ... (see queue.lua); a lock with one holder has no list.

local call = redis.call
local base = string.sub(KEYS[2], 1, -3)
local v = call('GET', KEYS[1])
local time = call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local holders, waiters = {}, {}
if v and string.sub(v, 1, 5) == 'hf0\031\031' then
  local ends = call('ZRANGEBYSCORE', base .. ':e', now + 1, '+inf', 'WITHSCORES')
  for i = 1, #ends, 2 do
    local text = call('HGET', base .. ':h', ends[i])
    if text then -- else another client has deleted it, and it is not held any more
      holders[#holders + 1] = ends[i]
      holders[#holders + 1] = text
      holders[#holders + 1] = ends[i + 1] - now
    end
  end
end
for _, owner in ipairs(call('LRANGE', KEYS[2], 0, -1)) do
  if string.byte(owner) == 31 then owner = string.sub(owner, 2) end
  local key = KEYS[2] .. ':' .. owner
  local text = call('GET', key)
  if text and text ~= 'x' then
    waiters[#waiters + 1] = owner
    waiters[#waiters + 1] = text
    waiters[#waiters + 1] = call('PTTL', key)
  end
end
local token, floor = call('GET', KEYS[3]), call('GET', base .. ':f')
if (tonumber(floor or 0) or 0) > (tonumber(token or 0) or 0) then token = floor end
return { v, call('PTTL', KEYS[1]), token, holders, waiters, now }
