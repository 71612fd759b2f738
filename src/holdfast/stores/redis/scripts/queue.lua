-- The rules of the queue, included by the scripts that change it: the twin of `holdfast.ledger`.
--
-- Needs the locals K, Q, C of the including script:
--   K  the lock key: an ordinary string with a TTL, which any client can see and respect
--   Q  the queue, a list in the order of arrival; its name ends in ":q". An entry is an owner, or US owner for
--      a waiter that is not handed the lock, only woken
--   C  the counter of tokens
-- Made from Q, so that all of them are in one slot of a cluster:
--   ...:q:OWNER  a waiter; the TTL of the key is the time that the waiter lives without a heartbeat. Or "x", the
--                tombstone of an owner that left before its request arrived
--   ...:h, ...:e the holders of a lock with a capacity above 1: their texts, and the times at which they end. In :h
--                there are also "", the weight in use; US slot, for each slot of a semaphore that is in use;
--                and US, the slot that was freed last
--   ...:f        the last token of a semaphore, while that is ahead of the clock. Tokens of other locks are not
--   ...:c        the latest changes of an election, for a day after the last one or the last look at them
--   ...:o        the observers of an election: channel, a space, owner; and the time until which each is told
--
-- The value of K decides. It is one of
--   hf1 US owner US token US since US request     a plain lock (weight 1 of 1, "lock") without waiters
--   hf2 US owner US token US since US request     a plain lock that may have waiters
--   hf0 US owner US token US since US request     another lock of capacity 1
--   hf3 US owner US token US since US request     a lock of a higher capacity, with one holder and without waiters;
--                                                 it is made one that is shared before another comes
--   hf0 US US capacity US kind                    a lock that several holders share, see ...:h and ...:e
--   anything else                                 a lock that a client which is not Holdfast holds
-- where US is the byte 31, which no name, owner or label can have, and a request is
--   weight US capacity US kind US barge US ttl US claim US patience US label    (times in ms; claim <= ttl)
-- The text of a waiter is: since US channel US request. That of a sharing holder is: token US since US request.
-- An empty `since` stands, for a holder, for its token; for a waiter, for as much before now as its TTL has gone down.
-- A change is: number US token US owner US since US label, without an owner and with an empty label if nobody leads.

local call, fmt, match, sub = redis.call, string.format, string.match, string.sub
local base = sub(Q, 1, -3)
local H, E, F = base .. ':h', base .. ':e', base .. ':f'
local CHANGES, OBSERVERS = base .. ':c', base .. ':o'
local FOREVER, DAY, CHANGES_KEPT = 3600000, 86400000, 64
local NOBODY = '\0310\031'
local LEADER = '^(%d+)\031%d*\0311\0311\031election\031' -- the text of a holder that leads an election
local WAITER = '^(%d*)\031([^\031]*)\031((%d+)\031(%d+)\031([^\031]*)\031(%d)\031(%d+)\031(%d+)\031(%d+)\031.*)$'

local v = call('GET', K) -- the value of K now; kept up to date below
local usage              -- the weight in use, where several share the lock; nil until it was looked up

local function waiter_key(owner) return Q .. ':' .. owner end
local function ours() return v and match(v, '^hf[0123]\031') end
local function has(owner) return ours() and sub(v, 5, 5 + #owner) == owner .. '\031' end
local function shared() return v and sub(v, 1, 5) == 'hf0\031\031' end
local function foreign() return v and not ours() end
local function holder_text() return match(v, '^hf[0123]\031[^\031]*\031(.*)$') end

local micros_now
local function micros()
  if not micros_now then
    local time = call('TIME')
    micros_now = time[1] * 1000000 + time[2]
  end
  return micros_now
end

local function millis() return math.floor(micros() / 1000) end

-- Returns a token above every token of this counter and above the clock, so that it rises even if the data is lost.
local function mint()
  local token = micros()
  local last = tonumber(call('SET', C, fmt('%.0f', token), 'GET') or 0) or 0
  if last >= token then
    token = last + 1
    call('SET', C, fmt('%.0f', token))
  end
  return token
end

local function read(text)
  local since, channel, request, weight, capacity, kind, barge, ttl, claim, patience = match(text, WAITER)
  if not since then return nil end
  return {
    since = since, channel = channel, request = request, ttl = tonumber(ttl), claim = tonumber(claim),
    patience = tonumber(patience), barge = barge == '1', weight = tonumber(weight),
    capacity = tonumber(capacity), kind = kind,
  }
end

-- Returns what the text of a holder says; nil if it only begins like ours.
local function read_holder(text)
  local request = text and match(text, '^%d+\031%d*\031(.*)$')
  return request and read('\031\031' .. request)
end

-- Returns the time since which the waiter waits.
local function began(waiter, key)
  if waiter.since ~= '' then return waiter.since end
  return fmt('%.0f', micros() - 1000 * math.max(0, waiter.patience - call('PTTL', key)))
end

-- Returns the entry that stands for a waiter in the queue.
local function place(owner, waiter) return waiter.barge and '\031' .. owner or owner end

local function enqueue(owner, waiter)
  if v and sub(v, 1, 4) == 'hf1\031' then
    call('SETRANGE', K, 2, '2')
    v = 'hf2' .. sub(v, 4)
  end
  call('RPUSH', Q, place(owner, waiter))
  call('PEXPIRE', Q, FOREVER + waiter.patience)
end

-- Makes the keys of a lock that several share last as long as the last of its holders.
local function cover()
  local last = call('ZREVRANGE', E, 0, 0, 'WITHSCORES')[2]
  if last then
    for _, key in ipairs({ K, H, E }) do call('PEXPIREAT', key, last) end
  else
    call('DEL', K, H, E)
    v = false
  end
end

local function slot(token, permits) return fmt('%.0f', math.fmod(token, permits)) end

-- Adds a holder, until `ends`, to those who share the lock. `text` is what is kept of it.
local function add(owner, text, holder, ends)
  usage = usage + holder.weight
  if holder.kind == 'semaphore' then
    local taken = '\031' .. slot(match(text, '^%d+'), holder.capacity)
    call('HSET', H, owner, text, '', usage, taken, '')
  else
    call('HSET', H, owner, text, '', usage)
  end
  call('ZADD', E, ends, owner)
  if not shared() then
    v = 'hf0\031\031' .. holder.capacity .. '\031' .. holder.kind
    call('SET', K, v)
  end
  cover()
end

-- Makes the only holder of a lock the first of those who share it.
local function share()
  if not v or sub(v, 1, 4) ~= 'hf3\031' then return end
  local owner, text = match(v, '^....([^\031]*)\031(.*)$')
  local holder = read_holder(text)
  if not holder then return end
  local left = call('PTTL', K)
  call('DEL', H, E)
  usage = 0
  add(owner, text, holder, millis() + (left < 0 and FOREVER or left) + 1)
end

local function drop(owner)
  local text = call('HGET', H, owner)
  local holder = text and read_holder(text)
  local free = holder and holder.kind == 'semaphore' and slot(match(text, '^%d+'), holder.capacity)
  usage = usage - (holder and holder.weight or 0)
  if free then
    call('HDEL', H, owner, '\031' .. free)
    call('HSET', H, '', usage, '\031', free)
  else
    call('HDEL', H, owner)
    call('HSET', H, '', usage)
  end
  call('ZREM', E, owner)
end

-- Removes the holders whose time is over, and adds up the weight in use.
local function weigh()
  if not shared() then
    usage = 0
    if not v then call('DEL', H, E) end
    return
  end
  usage = tonumber(call('HGET', H, '') or 0)
  local over = call('ZRANGEBYSCORE', E, '-inf', millis())
  for _, owner in ipairs(over) do drop(owner) end
  if #over > 0 then cover() end
end

-- Returns the text of an owner that holds the lock.
local function text_of(owner)
  if has(owner) then return holder_text() end
  if not shared() then return nil end
  if not usage then weigh() end
  return shared() and call('HGET', H, owner) or nil -- `weigh` may have found that all is over
end

local function room(request)
  if request.capacity == 1 then return not v end
  share()
  if not usage then weigh() end
  return (not v or shared()) and usage + request.weight <= request.capacity
end

-- Returns a token whose slot is free: no two holders of a semaphore may have the same slot, which is the remainder
-- of the token. There may be thousands of holders, so the next few slots are tried, then the one freed last, then
-- the rest.
local function into_slot(token, permits)
  local first, count = 0, math.min(8, permits)
  while count > 0 do
    local fields = {}
    for i = 1, count do fields[i] = '\031' .. slot(token + first + i - 1, permits) end
    local taken = call('HMGET', H, unpack(fields))
    for i = 1, count do
      if not taken[i] then return token + first + i - 1 end
    end
    if first == 0 then
      local free = call('HGET', H, '\031')
      if free and call('HEXISTS', H, '\031' .. free) == 0 then
        return token + math.fmod(free - math.fmod(token, permits) + permits, permits)
      end
    end
    first = first + count
    count = math.min(128, permits - first)
  end
  return token
end

-- Returns a token for this lock. A semaphore whose slots are nearly all taken goes far ahead of the clock: by its
-- permits, in µs, with each grant. That number is kept beside the lock, until the clock has passed it, and not in the
-- counter: other locks' tokens would not rise any more if the data were lost.
-- It is in the slot `wanted`, if that is given.
local function mint_for(request, wanted)
  local token, floor = mint(), tonumber(call('GET', F) or 0) or 0
  if request.kind == 'semaphore' then
    local permits = request.capacity
    local found = math.max(token, floor + 1)
    if wanted then
      found = found + math.fmod(wanted - math.fmod(found, permits) + permits, permits)
    elseif v then
      found = into_slot(found, permits)
    end
    if found > token then call('SET', F, fmt('%.0f', found), 'PX', math.ceil((found - micros()) / 1000) + 1) end
    return found
  end
  if floor >= token then -- until a moment ago the lock was a semaphore
    token = floor + 1
    call('SET', C, fmt('%.0f', token))
  end
  return token
end

-- Notes a change of an election, after which `owner` leads, or nobody, and wakes those who observe it. Its number is
-- above that of the last change. `request` ends with the leader's label.
local function note(number, token, owner, request)
  local last = call('LINDEX', CHANGES, -1)
  if last then number = math.max(number, match(last, '^%d+') + 1) end
  local label = request and match(request, '^' .. string.rep('[^\031]*\031', 7) .. '(.*)$') or NOBODY
  local change = { fmt('%.0f', number), token, owner, fmt('%.0f', micros()), label }
  call('RPUSH', CHANGES, table.concat(change, '\031'))
  call('LTRIM', CHANGES, -CHANGES_KEPT, -1)
  call('PEXPIRE', CHANGES, DAY)
  local observers = call('ZRANGEBYSCORE', OBSERVERS, '-inf', '+inf', 'WITHSCORES')
  for i = 1, #observers, 2 do
    local channel, observer = match(observers[i], '^(%S+) (%S+)$')
    if tonumber(observers[i + 1]) <= millis() or call('PUBLISH', channel, observer .. ' 0') == 0 then
      call('ZREM', OBSERVERS, observers[i])
    end
  end
end

-- Notes that nobody leads, unless somebody does, or that is known; `token` is that of the leader that ended, if known.
local function vacate(token)
  if v and not foreign() then return end
  local led, owner = match(call('LINDEX', CHANGES, -1) or '', '^%d+\031(%d+)\031([^\031]*)')
  if owner == '' then return end
  token = token or led
  if token then note(micros(), token, '') end
end

-- Makes an owner a holder, for `ms`; nothing else does. Of a semaphore it gets the slot `wanted`, if that is given.
local function take(owner, request, ms, wanted)
  local token = mint_for(request, wanted)
  local since = token ~= micros() and fmt('%.0f', micros()) or ''
  local text = fmt('%.0f', token) .. '\031' .. since .. '\031' .. request.request
  if request.capacity == 1 then
    v = (request.weight == 1 and request.kind == 'lock' and 'hf2\031' or 'hf0\031') .. owner .. '\031' .. text
    call('SET', K, v, 'PX', ms)
    if request.kind == 'election' then note(token, fmt('%.0f', token), owner, request.request) end
  else
    add(owner, text, request, millis() + ms + 1)
  end
  return token
end

-- Extends a lease, and never shortens it. Returns its token, or nil if this owner does not hold the lock.
local function extend(owner, ms)
  if has(owner) then
    if call('PTTL', K) < ms then call('PEXPIRE', K, ms) end
    return tonumber(match(holder_text(), '^%d+'))
  end
  if shared() then
    if not usage then weigh() end
    local text = call('HGET', H, owner)
    if text then
      local ends = millis() + ms + 1
      if ends > tonumber(call('ZSCORE', E, owner) or 0) then -- 0: another client has deleted it
        call('PEXPIREAT', K, ends) -- first, see beat.lua; `cover` corrects it
        call('ZADD', E, ends, owner)
        cover()
      end
      return tonumber(match(text, '^%d+'))
    end
  end
end

-- Admits the next waiters and passes over dead ones; returns the first that still waits. The owner `asking` reads
-- the reply, so it gets its whole TTL. Another is woken by a message to its own connection. If no connection to this
-- server listens on its channel, the waiter is gone, and is passed over at once; nothing is published then, because
-- the message might still be received from a replica, or from another server of a cluster.
local function settle(asking)
  while true do
    local owner = call('LINDEX', Q, 0)
    if not owner then return nil end
    if string.byte(owner) == 31 then owner = sub(owner, 2) end
    local key = waiter_key(owner)
    local text = call('GET', key)
    local waiter = text and read(text)
    if not waiter then
      call('LPOP', Q)
    elseif not room(waiter) then
      return waiter
    elseif waiter.barge and owner ~= asking then
      if call('PUBLISH', waiter.channel, owner .. ' 0') > 0 then
        -- The waiter has the claim window to come and take the lock. If it is frozen, it is passed over then.
        if call('PTTL', key) > waiter.claim then
          if waiter.since == '' then text = began(waiter, key) .. text end
          call('SET', key, text, 'PX', waiter.claim)
        end
        return waiter
      end
      call('LPOP', Q)
      call('DEL', key)
    else
      call('LPOP', Q)
      call('DEL', key)
      if owner == asking then
        take(owner, waiter, waiter.ttl)
      elseif call('PUBSUB', 'NUMSUB', waiter.channel)[2] > 0 then
        call('PUBLISH', waiter.channel, owner .. ' ' .. fmt('%.0f', take(owner, waiter, waiter.claim)))
      end
    end
  end
end

-- Returns for how many ms the present holders may hold the lock.
local function remaining()
  if not v then return 0 end
  if shared() then
    return math.max(0, (tonumber(call('ZREVRANGE', E, 0, 0, 'WITHSCORES')[2]) or 0) - millis())
  end
  local left = call('PTTL', K)
  return left < 0 and FOREVER or left
end
