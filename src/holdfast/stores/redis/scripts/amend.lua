-- Changes a lease that is held, and keeps its token: less weight, or another text of its label.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 the owner id · 2 the weight that it is to have, if that is less; 0: as it is
--       3 only if it is to have another text: that text
-- Returns 1, or 0 if this owner does not hold the lock.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local owner, weight, words = ARGV[1], tonumber(ARGV[2]), ARGV[3]

--@include queue.lua

local text = text_of(owner)
if not text then
  if not v or shared() then settle('') end
  return 0
end
local holder = read_holder(text)
local start, token, since = match(text, '^((%d+)\031(%d*)\031)')
local request = holder.request
if weight > 0 and weight < holder.weight then
  request = weight .. sub(request, #tostring(holder.weight) + 1)
end
if words then request = match(request, '^' .. string.rep('[^\031]*\031', 9)) .. words end
if request == holder.request then return 1 end
if shared() then
  call('HSET', H, owner, start .. request)
  if weight > 0 and weight < holder.weight then
    call('HINCRBY', H, '', weight - holder.weight)
    usage = usage + weight - holder.weight
    settle('')
  end
else
  v = sub(v, 1, 4) .. owner .. '\031' .. start .. request
  call('SET', K, v, 'KEEPTTL')
  if holder.kind == 'election' then note(micros(), token, owner, request) end
end
return 1
