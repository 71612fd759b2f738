-- Give back a hold on one node, whatever it answered before.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 ms for which a request of this owner that arrives later is refused; 0: not at all
--       2 whether to wake the first who waits here: "1" for a lease, "0" for a round that failed, after
--         which those who lost to each other would only be sent against each other again
--       3 the owner id
-- Answers 1 if it was held by this owner, otherwise 0.

local K, Q = KEYS[1], KEYS[2]
local start = 'rl1\031' .. ARGV[3] .. '\031'
local v = redis.call('GET', K)
local freed = 0
if v and string.sub(v, 1, #start) == start then
  redis.call('DEL', K)
  freed = 1
  if ARGV[2] == '1' and redis.call('EXISTS', Q) == 1 then
--@include redlock_wake.lua
    wake()
  end
end
if ARGV[1] ~= '0' then redis.call('SET', K .. ':x:' .. ARGV[3], '', 'PX', ARGV[1]) end
return freed
