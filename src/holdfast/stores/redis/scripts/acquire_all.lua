-- Grants several locks in one step; or, if one of them cannot be granted now, none. Puts nobody into a queue.
--
-- KEYS: for each of them 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: for each of them 1 the request (see queue.lua) · 2 ttl in ms · 3 the owner id
-- Returns the tokens; or -1 - ms, if one of the locks may be held by others for that long; or an error as acquire.lua
-- does, with the number of the lock behind it, from 0.

-- The common case first: plain locks, all of them free. It does what the rest below would do.
local exist, count = {}, #KEYS
for i = 1, count, 3 do
  if string.sub(ARGV[i], 1, 9) ~= '1\0311\031lock\031' then
    exist = nil
    break
  end
  local Q, size = KEYS[i + 1], #exist
  exist[size + 1], exist[size + 2] = KEYS[i], Q
  exist[size + 3], exist[size + 4] = Q .. ':' .. ARGV[i + 2], string.sub(Q, 1, -2) .. 'f'
end
if exist and #exist < 4000 and redis.call('EXISTS', unpack(exist)) == 0 then
  local call = redis.call
  local time = call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  local tokens = {}
  for i = 1, count, 3 do
    local token, since = now, ''
    local last = call('SET', KEYS[i + 2], now, 'GET')
    if last and (#last ~= #now or last >= now) then
      local higher = (tonumber(last) or 0) + 1
      if higher > tonumber(now) then
        token, since = string.format('%.0f', higher), now
        call('SET', KEYS[i + 2], token)
      end
    end
    call('SET', KEYS[i], 'hf1\031' .. ARGV[i + 2] .. '\031' .. token .. '\031' .. since .. '\031' .. ARGV[i],
      'PX', ARGV[i + 1])
    tokens[#tokens + 1] = tonumber(token)
  end
  return tokens
end

-- Returns a function that grants the lock; or nil and a refusal, or nil, nil and for how many ms it may be held.
local function prepare(K, Q, C, request, owner)
--@include queue.lua
--@include requests.lua

  local ask = read('\031\031' .. request)
  if call('GET', waiter_key(owner)) == 'x' then return nil, LEFT end
  local head
  if not v or shared() or foreign() then head = settle('') end
  local known = text_of(owner)
  if known then -- a repeated request, because the reply was lost, gets the same reply
    if differs(read_holder(known), ask) then return nil, USED end
    return function() return extend(owner, ask.ttl) end
  end
  local refusal = conflict(ask, head)
  if refusal then return nil, refusal end
  if not room(ask) or (head and not ask.barge) then return nil, nil, remaining() end
  return function()
    if ask.kind == 'election' and not v then vacate() end
    return take(owner, ask, ask.ttl)
  end
end

local grants = {}
for i = 1, count, 3 do
  local grant, refusal, ms = prepare(KEYS[i], KEYS[i + 1], KEYS[i + 2], ARGV[i], ARGV[i + 2])
  if refusal then return redis.error_reply(refusal .. ' ' .. (i - 1) / 3) end
  if not grant then return -1 - ms end
  grants[#grants + 1] = grant
end
for i = 1, #grants do grants[i] = grants[i]() end
return grants
