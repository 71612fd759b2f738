-- Makes the lease of one owner that of another, with a new token and never free in between: in one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 the request of the new owner (see queue.lua) · 2 the owner that has the lease · 3 the new owner
--       4 for how many ms requests of the former owner that arrive late are refused
-- Returns the new token, as text; or 0 if the first of them holds nothing; or an error, as acquire.lua does.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local giver, owner = ARGV[2], ARGV[3]

--@include queue.lua
--@include requests.lua

local ask = read('\031\031' .. ARGV[1])
local waiter = call('GET', waiter_key(owner))
if waiter == 'x' then return redis.error_reply(LEFT) end
local known = text_of(owner)
if known then -- a repeated request, because the reply was lost, gets the same reply
  if differs(read_holder(known), ask) then return redis.error_reply(USED) end
  return fmt('%.0f', extend(owner, ask.ttl))
end
waiter = waiter and read(waiter)
if waiter and differs(waiter, ask) then return redis.error_reply(USED) end
local given = not waiter and text_of(giver)
if not given then
  if not v or shared() then settle('') end
  return 0
end
local holder = read_holder(given)
if differs(holder, ask) then
  return redis.error_reply('HFKIND ' .. holder.capacity .. ' ' .. holder.kind)
end
local place_of_giver
share()
if shared() then
  if holder.kind == 'semaphore' then place_of_giver = slot(match(given, '^%d+'), holder.capacity) end
  drop(giver)
end
local token = take(owner, ask, ask.ttl, place_of_giver)
call('SET', waiter_key(giver), 'x', 'PX', ARGV[4])
if shared() then settle('') end -- another's time may be over
return fmt('%.0f', token)
