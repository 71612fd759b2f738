-- Ends what observe.lua began.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 the channel on which the observer is told · 2 its owner id
-- Returns 1 if the observer was known, otherwise 0.

return redis.call('ZREM', string.sub(KEYS[2], 1, -2) .. 'o', ARGV[1] .. ' ' .. ARGV[2])
