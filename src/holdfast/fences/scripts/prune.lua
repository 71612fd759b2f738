-- Forget marks that were not raised for a while, and raise the floors by what they were.
--
-- KEYS[1]    the floors: a hash by realm, '' for no lock, '*' the highest of all
-- KEYS[2..]  marks
-- ARGV[1]    milliseconds: the age from which on one is forgotten
--
-- Answers how many were forgotten.
local function below(a, b)
  return #a < #b or (#a == #b and a < b)
end
local now = redis.call('TIME')
local limit = now[1] * 1000 + math.floor(now[2] / 1000) - tonumber(ARGV[1])
local forgotten = 0
for i = 2, #KEYS do
  local mark = redis.call('GET', KEYS[i])
  local highest, ms, owner = string.match(mark or '', '^(%d+) (%d+) (.*)$')
  if highest and tonumber(ms) <= limit then
    for _, field in ipairs({string.match(owner, '^[^/]*'), '*'}) do
      local floor = redis.call('HGET', KEYS[1], field)
      if not floor or below(floor, highest) then
        redis.call('HSET', KEYS[1], field, highest)
      end
    end
    redis.call('DEL', KEYS[i])
    forgotten = forgotten + 1
  end
end
return forgotten
