-- Grant a lock, or put the asker into the queue, or refuse it: one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 capacity · 2 ttl in ms · 3 the request (see redis_queue.lua)
--       4 the channel where this asker is told; empty: do not put it into the queue · 5 its owner id
-- Answers the token; or {0, ms}: in the queue, the holders have that long; or {-1, ms}: not in the queue;
-- or an error: HFKIND capacity kind (in use as something else), HFUSED (this owner asked for something
-- else before), HFLEFT (this owner has left already).

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[5]

-- The common case first: nobody holds it, nobody waits, and this owner has not left before it came.
if ARGV[1] == '1' and redis.call('EXISTS', K, Q, string.sub(Q, 1, -3) .. ':w:' .. owner) == 0 then
  local time = redis.call('TIME')
  local token = time[1] * 1000000 + time[2]
  local text = string.format('%.0f', token)
  local last = redis.call('SET', C, text, 'GET')
  local since = text
  if last and tonumber(last) >= token then
    token = tonumber(last) + 1
    text = string.format('%.0f', token)
    redis.call('SET', C, text)
  end
  redis.call('SET', K, 'hf1\031' .. owner .. '\031' .. text .. '\031' .. since .. '\031' .. ARGV[3], 'PX', ARGV[2])
  return token
end

--@include redis_queue.lua

local channel = ARGV[4]
local ask = read('0\031' .. channel .. '\031' .. ARGV[3])
local mine = waiter_key(owner)
if call('GET', mine) == 'x' then
  return redis.error_reply('HFLEFT this owner has left')
end
local head
if not v or shared() or foreign() then head = settle('') end

local function differs(other)
  return other.weight ~= ask.weight or other.capacity ~= ask.capacity or other.kind ~= ask.kind
end
local USED = 'HFUSED this owner asked for something else'

-- Asked again, because the answer was lost: the same answer.
local known
if has(owner) then
  known = match(v, '^hf1\031[^\031]*\031(.*)$')
elseif shared() then
  known = call('HGET', H, owner)
end
if known then
  if differs(read_holder(known)) then return redis.error_reply(USED) end
  return extend(owner, ask.ttl)
end
known = call('GET', mine)
if known then
  local waiter = read(known)
  if differs(waiter) then return redis.error_reply(USED) end
  if channel == '' then return { -1, remaining() } end
  call('SET', mine, waiter.since .. '\031' .. channel .. '\031' .. ARGV[3], 'PX', ask.patience)
  return { 0, remaining() }
end

local capacity, kind
if shared() then
  capacity, kind = match(v, '^hf1\031\031(%d+)\031(.*)$')
elseif v and not foreign() then
  local holder = read_holder(match(v, '^hf1\031[^\031]*\031(.*)$'))
  capacity, kind = holder.capacity, holder.kind
elseif head then
  capacity, kind = head.capacity, head.kind
end
if capacity and (tonumber(capacity) ~= ask.capacity or kind ~= ask.kind) then
  return redis.error_reply('HFKIND ' .. capacity .. ' ' .. kind)
end

if room(ask) and (not head or ask.barge) then return take(owner, ask, ask.ttl) end
if channel == '' then return { -1, remaining() } end
call('SET', mine, fmt('%.0f', micros()) .. '\031' .. channel .. '\031' .. ARGV[3], 'PX', ask.patience)
call('RPUSH', Q, owner)
call('PEXPIRE', Q, FOREVER + ask.patience)
return { 0, remaining() }
