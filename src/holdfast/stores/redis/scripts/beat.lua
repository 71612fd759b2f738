-- Renews one waiter (its heartbeat) or one lease of any kind, and admits the next waiters.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 ttl in ms, for a lease that is held · 2 the owner id
-- Returns the token, if the owner holds the lock, for that ttl; or {token, ms}, if it was granted just now, for that
-- long; or {0, ms}, if it waits, and the holders may hold the lock for that long; or -1, if it does neither.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[2]

--@include queue.lua

local token = extend(owner, tonumber(ARGV[1]))
if token then return token end
local mine = waiter_key(owner)
local known = call('GET', mine)
local waiter = known and read(known)
if not waiter then return -1 end
local since = waiter.since == '' and began(waiter, mine)
-- This comes first: a server that is out of memory lets a script go on once it has changed something.
call('PEXPIRE', mine, waiter.patience)
if since then call('SET', mine, since .. known, 'PX', waiter.patience) end
call('PEXPIRE', Q, FOREVER + waiter.patience)
if not v or shared() then settle(owner) end
token = extend(owner, 0)
if not token and room(waiter) and not call('LPOS', Q, place(owner, waiter)) then
  -- There is room, and the waiter is not in the queue, which was evicted or deleted: it enrols again.
  enqueue(owner, waiter)
  settle(owner)
  token = extend(owner, 0)
end
if token then return { token, waiter.ttl } end
if waiter.barge and room(waiter) then
  -- This waiter is not the first, but may overtake: the first was only woken.
  call('DEL', mine)
  call('LREM', Q, 0, place(owner, waiter))
  return { take(owner, waiter, waiter.ttl), waiter.ttl }
end
return { 0, remaining() }
