-- Ends the lease of every holder, raises the token, leaves an audit record and hands on: in one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens · 4 the list of audit records
-- ARGV: 1 the record: who released which lock · 2 how many records are kept
-- Returns 1 if there was a holder, otherwise 0.

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
