-- Gives back a hold on one node, whatever the node replied before.
--
-- KEYS: 1 the lock
-- ARGV: 1 the owner id
--       2 ms for which a request of this owner that arrives later is refused; 0, or nothing: not at all
--       3 whether to wake the first waiter here: "1", or nothing, for a lease; "0" for a round that
--         failed, after which owners that lost to each other would only be sent against each other again
-- Returns 1 if this owner held the lock here, otherwise 0.

local call, K, owner, mark, quiet = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '0'
--@include free_one.lua
if mark and mark ~= '0' then call('SET', K .. ':x:' .. owner, '', 'PX', mark) end
return freed
