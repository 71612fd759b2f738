-- Returns the changes of an election above a number, and has an observer told of the next one.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 ms for which the observer is told · 2 the number of the last change that it knows; 0: none
--       3 the channel on which it is told · 4 its owner id
-- Returns {ms until the leader's lease ends, or 0 if nobody leads, change, change, ...}, see queue.lua; of all
-- changes the last alone, if it knows none.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local after = tonumber(ARGV[2])
local BEFORE_ALL = 1 -- the number that an observer asks with which has seen that there is no change
-- No change has this number: tokens are far below it, as it is below 2^53, above which Lua knows some numbers only.
local HIGHEST = 8e15

--@include queue.lua

if not v then settle('') end
local left = 0
local last = call('LINDEX', CHANGES, -1)
local owner, text = match(ours() and v or '', '^....([^\031]+)\031(.*)$')
local token = text and match(text, LEADER)
if token then
  left = remaining()
  if match(last or '', '^%d+\031(%d+)') ~= token then
    -- The leader leads for longer than changes are kept, or the server has lost them.
    note(tonumber(token), token, owner, read_holder(text).request)
  end
elseif last then
  vacate()
elseif after > BEFORE_ALL and after < HIGHEST then
  -- The server has lost all that the observer knew, and the leader with it.
  note(math.max(after + 1, micros()), '0', '')
end
call('PEXPIRE', CHANGES, DAY)
call('ZADD', OBSERVERS, millis() + ARGV[1], ARGV[3] .. ' ' .. ARGV[4])
call('PEXPIRE', OBSERVERS, ARGV[1])

local reply = { left }
for _, change in ipairs(call('LRANGE', CHANGES, after > 0 and 0 or -1, -1)) do
  if tonumber(match(change, '^%d+')) > after then reply[#reply + 1] = change end
end
return reply
