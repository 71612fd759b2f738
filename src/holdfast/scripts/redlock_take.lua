-- Phase 1 of a grant, on one node: if the lock is free, take it, raise the counter by one, and keep its
-- value beside the owner: the value at which this hold began. Asked again, the same hold answers the same.
--
-- KEYS: 1 the counters · 2 the marker · 3 the lock
-- ARGV: 1 ttl in ms · 2 the request (see redlock/commands.py) · 3 the stripe, a field of the counters
--       4 the owner id of this round · 5 the incarnation in which this node is believed to vote
-- Answers the value, or {value, known}: other nodes' incarnations that this one knows of; or
-- {-1, ms, owner}: another has it, for that long; or an error: HFOUT (this node does not vote, or not in
-- this incarnation), HFLEFT (this owner has left already).

local call, sub = redis.call, string.sub
local C, K, inc = KEYS[1], KEYS[3], ARGV[5]
local ttl, request, stripe, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found = call('MGET', KEYS[2], K, K .. ':x:' .. owner)
local m, v, left = found[1], found[2], found[3]
if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this life') end
--@include redlock_taking.lua
return answer
