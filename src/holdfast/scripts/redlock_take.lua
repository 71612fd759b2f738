-- Phase 1 of a grant, on one node: if the lock is free, take it, raise the counter by one, and keep its
-- value beside the owner: the value at which this hold began. Asked again, the same hold answers the same.
--
-- KEYS: 1 the lock · 2 the counters · 3 the marker
-- ARGV: 1 ttl in ms · 2 the request (see redlock/commands.py) · 3 the stripe, a field of the counters
--       4 the incarnation in which this node is believed to vote · 5 the owner id of this round
-- Answers the value, or {value, known}: other nodes' incarnations that this one knows of; or
-- {-1, ms, owner}: another has it, for that long; or an error: HFOUT (this node does not vote, or not in
-- this incarnation), HFLEFT (this owner has left already).

local call, sub = redis.call, string.sub
local K, owner, inc = KEYS[1], ARGV[5], ARGV[4]
local found = call('MGET', KEYS[3], K, K .. ':x:' .. owner)
local m, v, left = found[1], found[2], found[3]
if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this life') end
local begin
if not v and not left then
  begin = call('HINCRBY', KEYS[2], ARGV[3], 1)
  local text = string.format('%.0f', begin)
  if begin == 1 then
    begin = tonumber(string.match(m, '^[^\031]*\031%d+\031(%d+)')) + 1
    text = string.format('%.0f', begin)
    call('HSET', KEYS[2], ARGV[3], text)
  end
  -- Not dated yet, see redlock_since.lua.
  call('SET', K, 'rl1\031' .. owner .. '\031' .. text .. '\031' .. text .. '\031\031' .. ARGV[2], 'PX', ARGV[1])
else
  if not v then return redis.error_reply('HFLEFT this owner has left') end
  local holder, value = string.match(v, '^rl1\031([^\031]*)\031(%d+)')
  local ms = call('PTTL', K)
  if holder ~= owner then return { -1, ms, holder or '' } end
  if ms < tonumber(ARGV[1]) then call('PEXPIRE', K, ARGV[1]) end
  begin = tonumber(value)
end
-- Mostly nothing is known of others, and the marker ends there: a pattern would look at all of it.
if sub(m, -1) == '\031' then return begin end
return { begin, string.match(m, '[^\031]*$') }
