-- redlock_free.lua for several leases, each as if it had come alone.
--
-- KEYS: 1 … the locks
-- ARGV: 1 … the owner id of each
-- Answers a list of what each would have been answered.

local call, quiet = redis.call, false
local answers = {}
for i = 1, #KEYS do
  local K, owner = KEYS[i], ARGV[i]
--@include freeing.lua
  answers[i] = freed
end
return answers
