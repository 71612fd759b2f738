-- Included by take.lua and take_batch.lua: decides one request.
--
-- Needs the locals call, sub, m (the marker), N (the counter), K (the lock), ttl, request, owner, v (what the
-- lock says), left (whether this owner has left) and before (what the counter says). Makes the local answer.

local answer, begin
if v and sub(v, 1, 5) == 'rls1\031' then
--@include shared.lua
  if not is_held() then v = false end
end
if not v and not left then
  if not before then
    before = string.match(m, '^[^\031]*\031%d+\031(%d+)')
    call('SET', N, before)
    call('RPUSH', KEYS[1], N)
  end
  begin = call('INCR', N)
  -- The text from before, because to write out a number in Lua takes longer than the whole rest. There is no
  -- token yet (see raise.lua), and no date (see since.lua).
  call('SET', K, 'rl1\031' .. owner .. '\031' .. before .. '\031\031\031' .. request, 'PX', ttl)
elseif not v then
  answer = redis.error_reply('HFLEFT this owner has left')
else
  local holder, value = string.match(v, '^rl1\031([^\031]*)\031(%d+)')
  local ms = call('PTTL', K)
  if holder ~= owner then
    answer = { -1, ms, holder or '' }
--@include kind_of.lua
    if kind and kind ~= held_by_one(string.match(request, '^%d+\031[^\031]*\031%d+(%a?)')) then
      answer = { -2, ms, kind }
    end
  else
    if ms < tonumber(ttl) then call('PEXPIRE', K, ttl) end
    begin = tonumber(value) + 1
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
