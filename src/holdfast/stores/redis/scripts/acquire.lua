-- Grants a lock, or puts the owner into the queue, or refuses it: in one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 the request (see queue.lua) · 2 ttl in ms · 3 ms for which a waiter keeps its place without a heartbeat
--       4 the channel on which the owner is woken; empty: do not put it into the queue · 5 the owner id
-- Returns the token, as text, if the lock is granted; or ms, if the owner is in the queue, for which the holders
-- may still hold the lock; or -1 - ms, if it is not in the queue; or an error: HFKIND capacity kind (the lock is
-- in use as something else), HFUSED (this owner asked for something else before), HFLEFT (this owner has left).

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local request, channel, owner = ARGV[1], ARGV[4], ARGV[5]

-- The common cases first: a lock that is free, and a plain lock that another holds. They do what the rest below
-- would do. An election, and a semaphore of one permit, are not among them.
local plain = string.sub(request, 1, 9) == '1\0311\031lock\031'
if plain or not string.find(request, '^%d+\0311\031') then
  local call, sub = redis.call, string.sub
  local mine = Q .. ':' .. owner
  -- An owner with a channel has waited before, and will probably find the lock held again.
  local v = channel ~= '' and plain and call('GET', K)
  -- No holder, no waiter, this owner has not left before its request arrived, and this was no semaphore just now.
  if not v and call('EXISTS', K, Q, mine, string.sub(Q, 1, -2) .. 'f') == 0 then
    local time = call('TIME')
    local second, micro = time[1], time[2]
    local now = #micro == 6 and second .. micro or second .. sub('00000' .. micro, -6)
    local token, since = now, ''
    local last = call('SET', C, now, 'GET')
    if last and (#last ~= #now or last >= now) then
      local higher = (tonumber(last) or 0) + 1
      if higher > tonumber(now) then
        token, since = string.format('%.0f', higher), now
        call('SET', C, token)
      end
    end
    call('SET', K, (plain and 'hf1\031' or 'hf3\031') .. owner .. '\031' .. token .. '\031' .. since .. '\031' .. request, 'PX', ARGV[2])
    return token
  end
  -- Another owner holds it, as a plain lock too, and this owner is not known yet.
  if v then
    local h, f, flag, us = string.byte(v, 1, 4)
    if h == 104 and f == 102 and us == 31 and (flag == 50 or flag == 49) and string.byte(request, 10) == 48
      and sub(v, 5, 5 + #owner) ~= owner .. '\031'
      and call('SET', mine, '\031' .. channel .. '\031' .. request, 'NX', 'PX', ARGV[3]) then
      if flag == 49 then call('SETRANGE', K, 2, '2') end
      if call('RPUSH', Q, owner) == 1 then call('PEXPIRE', Q, 3600000 + ARGV[3]) end
      return call('PTTL', K)
    end
  end
end

--@include queue.lua
--@include requests.lua

local ask = read('\031' .. channel .. '\031' .. request)
local mine = waiter_key(owner)
if call('GET', mine) == 'x' then return redis.error_reply(LEFT) end
local head
if not v or shared() or foreign() then head = settle('') end

-- A repeated request, because the reply was lost, gets the same reply.
local known = text_of(owner)
if known then
  if differs(read_holder(known), ask) then return redis.error_reply(USED) end
  return fmt('%.0f', extend(owner, ask.ttl))
end
known = call('GET', mine)
if known then
  local waiter = read(known)
  if differs(waiter, ask) then return redis.error_reply(USED) end
  if channel == '' then return -1 - remaining() end
  call('SET', mine, began(waiter, mine) .. '\031' .. channel .. '\031' .. request, 'PX', ask.patience)
  return remaining()
end

local refusal = conflict(ask, head)
if refusal then return redis.error_reply(refusal) end

if ask.kind == 'election' and not v then vacate() end
if room(ask) and (not head or ask.barge) then return fmt('%.0f', take(owner, ask, ask.ttl)) end
if channel == '' then return -1 - remaining() end
call('SET', mine, '\031' .. channel .. '\031' .. request, 'PX', ask.patience)
enqueue(owner, ask)
return remaining()
