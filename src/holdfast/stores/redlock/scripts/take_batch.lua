-- Does the work of take.lua for several requests, each as if it had come alone.
--
-- KEYS: 1 and 2 as there · for each lock its counter, and the lock
-- ARGV: 1 to 3 as there, for each lock; behind all of them the incarnation
-- Returns a list with the reply that each would have had; or the error HFOUT.

local call, sub = redis.call, string.sub
local inc = ARGV[#ARGV]
local m = call('GET', KEYS[2])
if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
local answers = {}
for i = 1, #KEYS / 2 - 1 do
  local N, K, a = KEYS[2 * i + 1], KEYS[2 * i + 2], 3 * i - 2
  local ttl, request, owner = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  local found = call('MGET', K, K .. ':x:' .. owner, N)
  local v, left, before = found[1], found[2], found[3]
--@include take_one.lua
  answers[i] = answer
end
return answers
