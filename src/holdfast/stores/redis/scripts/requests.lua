-- What speaks against a request, included behind queue.lua by the scripts that grant locks.

local LEFT = 'HFLEFT this owner has left'
local USED = 'HFUSED this owner asked for something else'

local function differs(one, other)
  return one.weight ~= other.weight or one.capacity ~= other.capacity or one.kind ~= other.kind
end

-- Returns the refusal of a request of another kind or capacity than the lock is in use with, if it is in use. `head`
-- is the first waiter.
local function conflict(ask, head)
  local capacity, kind
  if shared() then
    capacity, kind = match(v, '^hf0\031\031(%d+)\031(.*)$')
  elseif v and not foreign() then
    local holder = read_holder(holder_text()) or {}
    capacity, kind = holder.capacity, holder.kind
  elseif head then
    capacity, kind = head.capacity, head.kind
  end
  if capacity and (tonumber(capacity) ~= ask.capacity or kind ~= ask.kind) then
    return 'HFKIND ' .. capacity .. ' ' .. kind
  end
end
