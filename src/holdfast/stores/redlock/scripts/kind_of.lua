-- Included by the scripts that refuse a request: as what the lock is in use.
--
-- Needs the local v (what the lock key says). Makes the local kind: the kind and the capacity; nil if the key is not ours.
-- Makes the function held_by_one, too: the same, for the letter of a kind that only one may hold.

local function held_by_one(letter)
  return (({ e = 'election', o = 'once' })[letter] or 'lock') .. '\0311'
end

local kind = string.match(v, '^rls1\031(.*)$')
local letter = not kind and
  string.match(v, '^rl1\031[^\031]*\031%d+\031%d*\031%d*\031%d+\031[^\031]*\031%d+(%a?)')
if letter then kind = held_by_one(letter) end
