-- Give back a hold on one node, whatever it answered before.
--
-- KEYS: 1 the lock · 2 its queue
-- ARGV: 1 the owner id
--       2 ms for which a request of this owner that arrives later is refused; 0, or nothing: not at all
--       3 whether to wake the first who waits here: "1", or nothing, for a lease; "0" for a round that
--         failed, after which those who lost to each other would only be sent against each other again
-- Answers 1 if it was held by this owner, otherwise 0.

local K, Q, mark = KEYS[1], KEYS[2], ARGV[2]
local start = 'rl1\031' .. ARGV[1] .. '\031'
local v = redis.call('GET', K)
local freed = 0
if v and string.sub(v, 1, #start) == start then
  redis.call('DEL', K)
  freed = 1
  if ARGV[3] ~= '0' and redis.call('EXISTS', Q) == 1 then
--@include redlock_wake.lua
    wake()
  end
end
if mark and mark ~= '0' then redis.call('SET', K .. ':x:' .. ARGV[1], '', 'PX', mark) end
return freed
