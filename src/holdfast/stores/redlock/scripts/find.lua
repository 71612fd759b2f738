-- Finds the holds of an owner on one node, in whichever round, and of one that may have adopted them already.
--
-- KEYS: 1 the lock
-- ARGV: 1 the owner id of the attempt · 2 the owner id of the one that adopts
-- Returns a list of: the owner id of the round; the slot, "r" or "w", or nothing for a plain lock; and the kind with the
-- capacity.

local K, found = KEYS[1], {}

local function note(text, mode, kind)
  local owner = string.match(text, '^rl1\031([^\031]*)')
  if owner and (string.match(owner, '^[^~]*') == ARGV[1] or owner == ARGV[2]) then
    found[#found + 1] = owner
    found[#found + 1] = mode
    found[#found + 1] = kind
  end
end

local v = redis.call('GET', K)
if v then
--@include kind_of.lua
  if string.sub(v, 1, 5) == 'rls1\031' then
--@include shared.lua
    is_held()
    local flat = redis.call('HGETALL', H)
    for i = 1, #flat, 2 do note(flat[i + 1], string.match(flat[i], '^r') or flat[i], kind) end
  elseif kind then
    note(v, '', kind)
  end
end
return found
