-- redlock_take.lua for several requests, each as if it had come alone.
--
-- KEYS: 1 the counters · 2 the marker · 3 … the locks
-- ARGV: 1 to 4 as there, for each lock; behind all of them the incarnation
-- Answers a list of what each would have been answered; or the error HFOUT.

local call, sub = redis.call, string.sub
local C, inc = KEYS[1], ARGV[#ARGV]
local m = call('GET', KEYS[2])
if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this life') end
local answers = {}
for i = 3, #KEYS do
  local K, a = KEYS[i], 4 * i - 11
  local ttl, request, stripe, owner = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local found = call('MGET', K, K .. ':x:' .. owner)
  local v, left = found[1], found[2]
--@include redlock_taking.lua
  answers[i - 2] = answer
end
return answers
