-- Renews many leases at once, of locks with one holder each. Never shortens, creates nothing.
--
-- KEYS: the locks
-- ARGV: for each of them US owner id US; then one ttl in ms for all, or one for each
-- Returns for each of them its token, or 0 if this owner does not hold it alone; beat.lua knows more.

local call, pcall, sub, match = redis.call, redis.pcall, string.sub, string.match
local answers, count = {}, #KEYS
local each = #ARGV == 2 * count
for i = 1, count do
  local key, between = KEYS[i], ARGV[i]
  local ttl = tonumber(ARGV[each and count + i or count + 1])
  local v = pcall('GET', key) -- not a string: another client has put something else at this key
  if type(v) == 'string' and sub(v, 4, 3 + #between) == between and sub(v, 1, 2) == 'hf' then
    if call('PTTL', key) < ttl then call('PEXPIRE', key, ttl) end
    answers[i] = tonumber(match(v, '^%d+', #between + 4))
  else
    answers[i] = 0
  end
end
return answers
