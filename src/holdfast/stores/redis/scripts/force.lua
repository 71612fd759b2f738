-- End every holder's lease, raise the token, leave an audit record, and hand on: one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens · 4 the list of audit records
-- ARGV: 1 who did it, and to which lock · 2 how many records are kept
-- Answers 1 if somebody held it, otherwise 0.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]

--@include queue.lua

weigh()
local held = v and 1 or 0
call('DEL', K, H, E)
v = false
usage = 0
mint()
call('LPUSH', KEYS[4], fmt('%.6f', micros() / 1000000) .. ' ' .. ARGV[1])
call('LTRIM', KEYS[4], 0, ARGV[2] - 1)
settle('')
return held
