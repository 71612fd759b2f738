-- Phase 1 of an adoption, on one node: the hold of the giver ends, and one of the new owner begins, in the same step.
-- It is a new hold, with a value of its own at which it began. A repeated request gets the same reply.
--
-- KEYS: 1 the counters in use · 2 the marker · 3 the lock's counter · 4 the lock
-- ARGV: 1 the slot, "r" or "w"; nothing: a plain lock · 2 ttl in ms · 3 the request · 4 the owner id of the giver's round
--       5 the new owner id · 6 the incarnation in which this node is believed to vote
-- Returns as take.lua does; {-1, 0, ""}: the giver does not hold it here.

local call = redis.call
local N, K = KEYS[3], KEYS[4]
local mode, ttl, request, giver, owner, inc = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local m = call('GET', KEYS[2])
if not m or string.sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
if call('EXISTS', K .. ':x:' .. owner) == 1 then return redis.error_reply('HFLEFT this owner has left') end
local mine, theirs = 'rl1\031' .. owner .. '\031', 'rl1\031' .. giver .. '\031'
local before = call('GET', N)
local begin

-- Returns the value at which the hold begins.
local function begins()
  request = mine .. before .. '\031\031\031' .. request
  return call('INCR', N)
end

local function value_in(text)
  return tonumber(string.match(text, '^rl1\031[^\031]*\031(%d+)')) + 1
end

if mode == '' then
  local v = call('GET', K)
  if v and string.sub(v, 1, #mine) == mine then
    begin = value_in(v)
  elseif v and before and string.sub(v, 1, #theirs) == theirs then
    begin = begins()
    call('SET', K, request, 'PX', ttl)
  end
else
--@include shared.lua
  local field, old = mode, mode
  if mode == 'r' then field, old = 'r' .. owner, 'r' .. giver end
  local left, v = lasting(field, mine)
  if left then
    begin = value_in(v)
  elseif before and lasting(old, theirs) then
    begin = begins()
    call('HSET', H, field, request)
    last(field, ttl)
    if old ~= field then drop(old) end
  end
end
if not begin then return { -1, 0, '' } end
if string.sub(m, -1) == '\031' then return begin end
return { begin, string.match(m, '[^\031]*$') }
