-- Included by redlock_take.lua and redlock_takes.lua: what becomes of one request.
--
-- Needs the locals call, sub, C (the counters), m (the marker), K (the lock), ttl, request, stripe, owner, v
-- (what the lock says) and left (whether this owner has left). Makes the local answer.

local answer, begin
if not v and not left then
  begin = call('HINCRBY', C, stripe, '1') -- a text: numbers, as a rule, are slow to write
  if begin == 1 then
    begin = tonumber(string.match(m, '^[^\031]*\031%d+\031(%d+)')) + 1
    call('HSET', C, stripe, string.format('%.0f', begin))
  end
  local text = call('HGET', C, stripe) -- so is this one
  -- Not dated yet, see redlock_since.lua.
  call('SET', K, 'rl1\031' .. owner .. '\031' .. text .. '\031' .. text .. '\031\031' .. request, 'PX', ttl)
elseif not v then
  answer = redis.error_reply('HFLEFT this owner has left')
else
  local holder, value = string.match(v, '^rl1\031([^\031]*)\031(%d+)')
  local ms = call('PTTL', K)
  if holder ~= owner then
    answer = { -1, ms, holder or '' }
  else
    if ms < tonumber(ttl) then call('PEXPIRE', K, ttl) end
    begin = tonumber(value)
  end
end
if begin then
  -- Mostly nothing is known of others, and the marker ends there: a pattern would look at all of it.
  if sub(m, -1) == '\031' then
    answer = begin
  else
    answer = { begin, string.match(m, '[^\031]*$') }
  end
end
