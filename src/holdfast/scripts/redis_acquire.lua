-- Grant a lock, or put the asker into the queue, or refuse it: one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 weight US capacity US kind · 2 ttl in ms · 3 the request (see redis_queue.lua)
--       4 ms that it keeps its place without a heartbeat
--       5 the channel where this asker is told; empty: do not put it into the queue · 6 its owner id
-- Answers the token; or {0, ms}: in the queue, the holders have that long; or {-1, ms}: not in the queue;
-- or an error: HFKIND capacity kind (in use as something else), HFUSED (this owner asked for something
-- else before), HFLEFT (this owner has left already).

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local shape, channel, owner = ARGV[1], ARGV[5], ARGV[6]

-- The two common cases first, for a lock that one holds. They do what the rest below would do.
if string.sub(shape, 1, 4) == '1\0311\031' then
  local mine = string.sub(Q, 1, -3) .. ':w:' .. owner
  -- Nobody holds it, nobody waits, and this owner has not left before it came.
  if redis.call('EXISTS', K, Q, mine) == 0 then
    local time = redis.call('TIME')
    local now = time[1] .. string.sub('00000' .. time[2], -6)
    local token = now
    local last = redis.call('SET', C, now, 'GET')
    if last and tonumber(last) >= tonumber(now) then
      token = string.format('%.0f', tonumber(last) + 1)
      redis.call('SET', C, token)
    end
    redis.call('SET', K, 'hf1\031' .. owner .. '\031' .. token .. '\031' .. now .. '\031' .. ARGV[3], 'PX', ARGV[2])
    return tonumber(token)
  end
  -- Another holds it, as the same kind of lock, and this owner is not known yet.
  if channel ~= '' then
    local holder, kind = string.match(
      redis.call('GET', K) or '', '^hf1\031([^\031]+)\031%d+\031%d+\031(%d+\031%d+\031[^\031]*)\031')
    if kind == shape and holder ~= owner then
      local time = redis.call('TIME')
      local text = time[1] .. string.sub('00000' .. time[2], -6) .. '\031' .. channel .. '\031' .. ARGV[3]
      if redis.call('SET', mine, text, 'NX', 'PX', ARGV[4]) then
        redis.call('RPUSH', Q, owner)
        redis.call('PEXPIRE', Q, 3600000 + ARGV[4])
        return { 0, redis.call('PTTL', K) }
      end
    end
  end
end

--@include redis_queue.lua

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
