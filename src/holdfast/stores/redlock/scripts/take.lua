-- Phase 1 of a grant, on one node: if the lock is free, takes it, raises the counter by one, and keeps the
-- counter from before beside the owner: the hold began one above that. A repeated request gets the same reply.
--
-- KEYS: 1 the counters in use · 2 the marker · 3 the lock's counter · 4 the lock
-- ARGV: 1 ttl in ms · 2 the request (see redlock/commands.py) · 3 the owner id of this round
--       4 the incarnation in which this node is believed to vote
-- Returns the value at which the hold began, or {value, known} with the lives of other nodes that this one knows
-- of; or {-1, ms, owner} if another owner has the lock, for that long; or an error: HFOUT (this node does not
-- vote, or not in this incarnation), HFLEFT (this owner has left already).

local call, sub = redis.call, string.sub
local N, K = KEYS[3], KEYS[4]
local ttl, request, owner, inc = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found = call('MGET', KEYS[2], K, K .. ':x:' .. owner, N)
local m, v, left, before = found[1], found[2], found[3], found[4]
if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
--@include take_one.lua
return answer
