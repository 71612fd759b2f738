-- Give back a hold on one node, whatever it answered before.
--
-- KEYS: 1 the lock · 2 its queue; of several, each after the other
-- ARGV: 1 … the owner id, of each
--       then ms for which a request of this owner that arrives later is refused; 0, or nothing: not at all
--       then whether to wake the first who waits here: "1", or nothing, for a lease; "0" for a round that
--         failed, after which those who lost to each other would only be sent against each other again
-- Answers 1 if it was held by this owner, otherwise 0; of several, a list.

local count = #KEYS / 2
local mark, waking = ARGV[count + 1], ARGV[count + 2] ~= '0'

local function free(K, Q, owner)
  local start = 'rl1\031' .. owner .. '\031'
  local v = redis.call('GET', K)
  local freed = 0
  if v and string.sub(v, 1, #start) == start then
    redis.call('DEL', K)
    freed = 1
    if waking and redis.call('EXISTS', Q) == 1 then
--@include redlock_wake.lua
      wake()
    end
  end
  if mark and mark ~= '0' then redis.call('SET', K .. ':x:' .. owner, '', 'PX', mark) end
  return freed
end

if count == 1 then return free(KEYS[1], KEYS[2], ARGV[1]) end
local answers = {}
for i = 1, count do answers[i] = free(KEYS[2 * i - 1], KEYS[2 * i], ARGV[i]) end
return answers
