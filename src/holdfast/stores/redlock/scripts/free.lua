-- Give back a hold on one node, whatever it answered before.
--
-- KEYS: 1 the lock
-- ARGV: 1 the owner id
--       2 ms for which a request of this owner that arrives later is refused; 0, or nothing: not at all
--       3 whether to wake the first who waits here: "1", or nothing, for a lease; "0" for a round that
--         failed, after which those who lost to each other would only be sent against each other again
-- Answers 1 if it was held by this owner, otherwise 0.

local call, K, owner, mark, quiet = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '0'
--@include freeing.lua
if mark and mark ~= '0' then call('SET', K .. ':x:' .. owner, '', 'PX', mark) end
return freed
