-- Forget marks at which no token was shown for a while, and raise the floors by what they were.
--
-- KEYS[1]    the floors: a hash of "WRITER READER", and a third word for those that a person has set, by
--            realm, '' for no lock, '*' for the highest of all, and \1LOCK for a lock's own
-- KEYS[2..]  marks
-- ARGV[1]    milliseconds: the age from which on one is forgotten
-- ARGV[2]    a token above which no mark is forgotten: its floor would shut out everybody
-- ARGV[3..]  locks that are held, and used, since before some of these marks: from now on they have a
--            floor of their own
--
-- Answers how many were forgotten.
local function below(a, b)
  return #a < #b or (#a == #b and a < b)
end
local function raise(field, writer, reader)
  local w, r, pinned = string.match(redis.call('HGET', KEYS[1], field) or '', '^(%d+) ?(%d*)(.*)$')
  w = w and not below(w, writer) and w or writer
  r = r and not below(r, reader) and r or reader
  redis.call('HSET', KEYS[1], field, w .. ' ' .. r .. (pinned or ''))
end
for i = 3, #ARGV do
  local field = '\1' .. ARGV[i]
  if redis.call('HEXISTS', KEYS[1], field) == 0 then
    raise(field, '0', '0')
    for _, common in ipairs({string.match(ARGV[i], '^[^/]*'), ''}) do
      local w, r = string.match(redis.call('HGET', KEYS[1], common) or '', '^(%d+) ?(%d*)')
      if w then
        raise(field, w, r == '' and '0' or r)
      end
    end
  end
end
local now = redis.call('TIME')
local limit = now[1] * 1000 + math.floor(now[2] / 1000) - tonumber(ARGV[1])
local forgotten = 0
for i = 2, #KEYS do
  local mark = redis.call('GET', KEYS[i])
  local highest, reader, ms, owner = string.match(mark or '', '^(%d+)/?(%d*) (%d+) (.*)$')
  if highest and reader == '' then
    reader = '0'
  end
  if highest and tonumber(ms) <= limit and not below(ARGV[2], highest)
    and not below(ARGV[2], reader) then
    raise(string.match(owner, '^[^/]*'), highest, reader)
    raise('*', highest, reader)
    if redis.call('HEXISTS', KEYS[1], '\1' .. owner) == 1 then
      raise('\1' .. owner, highest, reader)
    end
    redis.call('DEL', KEYS[i])
    forgotten = forgotten + 1
  end
end
return forgotten
