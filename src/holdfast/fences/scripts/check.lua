-- The fence before a Redis key: lets a token pass and remembers it, or answers what it has seen.
-- What is to be done once it has passed follows this text, in the same script: one atomic step.
--
-- KEYS[1]  the mark: "TOKEN MILLISECONDS LOCK", when it was raised, LOCK perhaps empty
-- KEYS[2]  the floors of what was pruned: a hash by realm, '' for no lock, '*' the highest of all
-- ARGV[1]  the token
-- ARGV[2]  the identity of its lock, or empty
-- ARGV[3]  'w' to write, 'o' to write once per token, 'r' to compare only
--
-- Answers {highest, lock} if it is refused. Tokens are compared as text, since a number loses digits
-- beyond 2^53.
local function below(a, b)
  return #a < #b or (#a == #b and a < b)
end
local token, lock, mode = ARGV[1], ARGV[2], ARGV[3]
local highest, owner = '0', ''
local mark = redis.call('GET', KEYS[1])
if mark then
  highest, owner = string.match(mark, '^(%d+) %d+ (.*)$')
else
  local fields = {'*', '*'}
  if lock ~= '' then
    fields = {string.match(lock, '^[^/]*'), ''}
  end
  local floors = redis.call('HMGET', KEYS[2], fields[1], fields[2])
  for i = 1, 2 do
    if floors[i] and below(highest, floors[i]) then
      highest = floors[i]
    end
  end
end
if (owner ~= '' and lock ~= '' and owner ~= lock) or below(token, highest)
  or (mode == 'o' and token == highest) then
  return {highest, owner}
end
if mode ~= 'r' and (not mark or token ~= highest or (owner == '' and lock ~= '')) then
  local now = redis.call('TIME')
  local ms = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
  redis.call('SET', KEYS[1], token .. ' ' .. ms .. ' ' .. (owner ~= '' and owner or lock))
end
