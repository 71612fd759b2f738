-- Reads locks on one node. Ends what is over, and changes nothing else.
--
-- KEYS: the locks, their queues and their counters, in turn
-- Returns for each {the text of the lock key, its ms, the counter or 0, waiters, holds, µs of the clock}: waiters is a list of owner, text,
-- ms, ...; holds, of a lock that several may hold, one of field, text, ms, ...

--@include since.lua

-- Returns the holds of a lock that several may hold; nothing if it is not held.
local function holds_of(K)
--@include shared.lua
  if not is_held() then return nil end
  local holds, flat = {}, redis.call('ZRANGE', E, 0, -1, 'WITHSCORES')
  for i = 1, #flat, 2 do
    local left = flat[i + 1] - now
    holds[#holds + 1] = flat[i]
    holds[#holds + 1] = dated(redis.call('HGET', H, flat[i]) or '', left)
    holds[#holds + 1] = left
  end
  return holds
end

local time = redis.call('TIME')
local answers = {}
for i = 1, #KEYS, 3 do
  local K = KEYS[i]
  local waiters = {}
  for _, owner in ipairs(redis.call('LRANGE', KEYS[i + 1], 0, -1)) do
    local text = redis.call('GET', K .. ':w:' .. owner)
    if text then
      waiters[#waiters + 1] = owner
      waiters[#waiters + 1] = text
      waiters[#waiters + 1] = redis.call('PTTL', K .. ':w:' .. owner)
    end
  end
  local counter = redis.call('GET', KEYS[i + 2]) or '0'
  local v, left, holds = redis.call('GET', K), redis.call('PTTL', K), {}
  if v and string.sub(v, 1, 5) == 'rls1\031' then
    holds = holds_of(K)
    if not holds then v, holds = false, {} end
  elseif v then
    v = dated(v, left)
  end
  answers[#answers + 1] = { v, left, counter, waiters, holds, time[1] * 1000000 + time[2] }
end
return answers
