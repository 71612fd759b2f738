-- Lets a lease last for exactly a given time from now. The one script that may shorten it.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 the owner id · 2 the time in ms
-- Returns 1, or 0 if this owner does not hold the lock.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local owner, ms = ARGV[1], tonumber(ARGV[2])

--@include queue.lua

if has(owner) then
  call('PEXPIRE', K, ms)
  return 1
end
local held = text_of(owner)
if held then
  local ends = millis() + ms + 1
  call('PEXPIREAT', K, ends) -- first, see beat.lua; `cover` corrects it
  call('ZADD', E, ends, owner)
  cover()
end
if not v or shared() then settle('') end
return held and 1 or 0
