-- Reads locks on one node. Changes nothing.
--
-- KEYS: the locks, their queues and their counters, in turn
-- Returns for each {the text of the lock key, its ms, the counter or 0, waiters}, the last a list of owner,
-- text, ms, ...

--@include since.lua

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
  local v, left = redis.call('GET', K), redis.call('PTTL', K)
  if v then v = dated(v, left) end
  answers[#answers + 1] = { v, left, counter, waiters }
end
return answers
