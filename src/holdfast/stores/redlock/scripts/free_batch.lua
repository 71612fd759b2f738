-- Does the work of free.lua for several leases, each as if it had come alone.
--
-- KEYS: 1 … the locks
-- ARGV: 1 … the owner id of each
-- Returns a list with the reply that each would have had.

local call, quiet = redis.call, false
local answers = {}
for i = 1, #KEYS do
  local K, owner = KEYS[i], ARGV[i]
--@include free_one.lua
  answers[i] = freed
end
return answers
