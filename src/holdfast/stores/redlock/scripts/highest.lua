-- Reads the highest counter of a node, whether or not it votes, and its clock.
--
-- KEYS: 1 the marker · 2 the counters in use
-- Returns {the highest counter, µs of its clock}.

local m = redis.call('GET', KEYS[1])
--@include highest_one.lua
local time = redis.call('TIME')
return { highest, time[1] * 1000000 + time[2] }
