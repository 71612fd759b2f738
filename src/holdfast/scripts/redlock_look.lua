-- Locks as they stand on one node. Changes nothing.
--
-- KEYS: 1 the counters · 2 … the locks and their queues, in turn
-- ARGV: the stripe of each lock
-- Answers for each {what the lock key says, its ms, the counter or 0, waiters}, the last a list of owner,
-- text, ms, ...

--@include redlock_since.lua

local answers = {}
for i = 2, #KEYS, 2 do
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
  local counter = redis.call('HGET', KEYS[1], ARGV[i / 2]) or '0'
  local v, left = redis.call('GET', K), redis.call('PTTL', K)
  if v then v = dated(v, left) end
  answers[#answers + 1] = { v, left, counter, waiters }
end
return answers
