-- The fence before a Redis key: lets a token pass and remembers it, or answers what it has seen.
-- What is to be done once it has passed follows this text, in the same script: one atomic step.
--
-- KEYS[1]  the mark: "WRITER/READER MILLISECONDS LOCK": the highest token of a writer and of a reader,
--          when one was last shown (to some seconds), and LOCK, which may be empty
-- KEYS[2]  the floors of what was pruned: a hash of "WRITER READER" by realm, '' for no lock, '*' for
--          the highest of all, and \1LOCK for a lock that has floors of its own
-- ARGV[1]  the token
-- ARGV[2]  the identity of its lock, or empty
-- ARGV[3]  'w' to write, 'o' to write once per token, 'r' for a reader; with a '+' behind it if the mark
--          is to be made young, although the token is in it already
--
-- Answers {writer, lock, reader} if it is refused. Tokens are compared as text, since a number loses
-- digits beyond 2^53.
local function below(a, b)
  return #a < #b or (#a == #b and a < b)
end
local token, lock, mode = ARGV[1], ARGV[2], ARGV[3]
local young = #mode > 1
if young then
  mode = string.sub(mode, 1, 1)
end
local highest, reader, owner = '0', '0', ''
local mark = redis.call('GET', KEYS[1])
if mark then
  highest, reader, owner = string.match(mark, '^(%d+)/?(%d*) %d+ (.*)$')
  if reader == '' then
    reader = '0'
  end
else
  local floors
  if lock == '' then
    floors = {redis.call('HGET', KEYS[2], '*')}
  else
    floors = redis.call('HMGET', KEYS[2], '\1' .. lock, string.match(lock, '^[^/]*'), '')
    if floors[1] then
      floors = {floors[1]}
    end
  end
  for i = 1, 3 do
    local w, r = string.match(floors[i] or '', '^(%d+) ?(%d*)')
    if w and below(highest, w) then
      highest = w
    end
    if r and below(reader, r) then
      reader = r
    end
  end
end
local least = highest
if mode ~= 'r' and below(least, reader) then
  least = reader
end
if (owner ~= '' and lock ~= '' and owner ~= lock) or below(token, least)
  or (mode == 'o' and token == highest) then
  return {highest, owner, reader}
end
local higher
if mode == 'r' then
  higher = below(reader, token)
  reader = higher and token or reader
else
  higher = token ~= highest
  highest = token
end
if higher or young or not mark or (owner == '' and lock ~= '') then
  local now = redis.call('TIME')
  now = now[1] * 1000 + math.floor(now[2] / 1000)
  owner = owner ~= '' and owner or lock
  redis.call('SET', KEYS[1], string.format('%s/%s %.0f %s', highest, reader, now, owner))
end
