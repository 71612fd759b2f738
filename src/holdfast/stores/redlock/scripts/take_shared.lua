-- Phase 1 of a grant of a lock that several may hold, on one node: as take.lua, for one hold beside others. A slot of a
-- semaphore is a lock of its own. A reader shares with readers, and a writer with nobody.
--
-- KEYS: 1 the counters in use · 2 the marker · 3 the lock's counter · 4 the lock
-- ARGV: 1 what the lock key of this kind and capacity says · 2 the capacity · 3 ms for which a writer that is refused
--       keeps new readers off; 0: not at all · 4 ttl in ms · 5 the request · 6 the slot, "r" or "w" · 7 the owner id of
--       this round · 8 the incarnation in which this node is believed to vote
-- Returns as take.lua does; or {-1, ms, owner, slots ...} with some slots that are free here, if that one is taken;
-- or {-1, ms, "*"} if all are, or if readers keep a writer off.

local call, sub = redis.call, string.sub
local N, K = KEYS[3], KEYS[4]
local meta, capacity, ttl, mode, owner, inc = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[6], ARGV[7], ARGV[8]
local found = call('MGET', KEYS[2], K, K .. ':x:' .. owner, N, K .. ':i')
local m, v, left, before, wanted = found[1], found[2], found[3], found[4], found[5]
if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
--@include shared.lua

local held = v and is_held() -- without the lock key there is no hold
if v and not held and sub(v, 1, 5) == 'rls1\031' then v = false end
if v and v ~= meta then
--@include kind_of.lua
  return { kind and -2 or -1, call('PTTL', K), kind or '' }
end
local field = mode == 'r' and 'r' .. owner or mode
local text = held and call('HGET', H, field)
local holder, begin
if text then
  local value
  holder, value = string.match(text, '^rl1\031([^\031]*)\031(%d+)')
  if holder == owner then
    if call('ZSCORE', E, field) - now < tonumber(ttl) then last(field, ttl) end
    begin = tonumber(value) + 1
  end
end
if not begin then
  if left then return redis.error_reply('HFLEFT this owner has left') end
  if mode == 'w' and held then
    if ARGV[3] ~= '0' then call('SET', I, string.match(owner, '^[^~]*'), 'PX', ARGV[3]) end
    return { -1, busy_for(mode), holder or '*' }
  elseif mode == 'r' then
    local ms = (held or wanted) and busy_for(mode) or 0
    if ms > 0 then
      local writer = string.match(call('HGET', H, 'w') or '', '^rl1\031([^\031]*)')
      return { -1, ms, writer or call('GET', I) or '' }
    end
  elseif holder or (held and call('ZCARD', E) >= capacity) then
    local ms = busy_for(mode, capacity)
    if ms > 0 then return { -1, ms, '*' } end
    local answer = { -1, 0, holder }
    local byte = math.floor(mode / 8)
    for _ = 1, 2 do -- from there on, and else from the first slot that is free at all
      local bits = call('GETRANGE', M, byte, byte + 7)
      for slot = 8 * byte, math.min(8 * byte + 63, capacity - 1) do
        local place = slot - 8 * byte
        local bit = 2 ^ (7 - place % 8)
        if (string.byte(bits, math.floor(place / 8) + 1) or 0) % (2 * bit) < bit then
          answer[#answer + 1] = slot
        end
      end
      if #answer > 3 then return answer end
      local first = call('BITPOS', M, 0)
      byte = math.floor(first / 8)
    end
    return answer
  end
  if not before then
    before = string.match(m, '^[^\031]*\031%d+\031(%d+)')
    call('SET', N, before)
    call('RPUSH', KEYS[1], N)
  end
  begin = call('INCR', N)
  call('HSET', H, field, 'rl1\031' .. owner .. '\031' .. before .. '\031\031\031' .. ARGV[5])
  if tonumber(mode) then call('SETBIT', M, mode, 1) end
  if v then
    last(field, ttl)
  else
    call('SET', K, meta, 'PX', 2 * ttl)
    call('ZADD', E, now + ttl, field)
    call('PEXPIRE', H, 2 * ttl)
    call('PEXPIRE', E, 2 * ttl)
    if tonumber(mode) then call('PEXPIRE', M, 2 * ttl) end
  end
end
if sub(m, -1) == '\031' then return begin end
return { begin, string.match(m, '[^\031]*$') }
