-- Ends the lease of every holder, raises the token, leaves an audit record and hands on: in one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens · 4 the list of audit records
-- ARGV: 1 the record: who released which lock · 2 how many records are kept · 3 the channel of forced releases
--       4 a number that every later token is above
-- Returns 1 if there was a holder, otherwise 0.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]

--@include queue.lua

weigh()
local held = v and 1 or 0
local victims, led = {}, nil
if shared() then
  victims = call('ZRANGEBYSCORE', E, '-inf', '+inf')
elseif ours() then -- or what begins like ours
  victims[1] = match(v, '^....([^\031]+)\031')
  led = match(holder_text() or '', LEADER)
end
call('DEL', K, H, E)
v = false
usage = 0
local above = tonumber(ARGV[4])
if mint() < above then call('SET', C, fmt('%.0f', above)) end
call('LPUSH', KEYS[4], fmt('%.6f', micros() / 1000000) .. ' ' .. ARGV[1])
call('LTRIM', KEYS[4], 0, ARGV[2] - 1)
for _, owner in ipairs(victims) do call('PUBLISH', ARGV[3], owner .. ' -1') end
settle('')
if led then vacate(led) end
return held
