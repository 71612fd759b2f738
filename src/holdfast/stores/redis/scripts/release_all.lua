-- Ends several leases, of locks with one holder and no waiters each: in one step. Leaves all others as they are.
--
-- KEYS: the locks
-- ARGV: for each of them US owner id US
-- Returns for each of them 1 if it was released; or 0, if that is for release.lua, which knows more.

local sub = string.sub
local values, answers, free = redis.call('MGET', unpack(KEYS)), {}, {}
for i = 1, #KEYS do
  local v, between = values[i], ARGV[i]
  local begins = v and sub(v, 1, 3 + #between)
  if begins == 'hf1' .. between or begins == 'hf3' .. between then
    answers[i] = 1
    free[#free + 1] = KEYS[i]
  else
    answers[i] = 0
  end
end
if #free > 0 then redis.call('DEL', unpack(free)) end
return answers
