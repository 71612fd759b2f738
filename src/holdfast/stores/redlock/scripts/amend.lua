-- Changes a hold on one node: another text, or a reader's in the place of a writer's. Knows only the very hold, which
-- goes on, with its token.
--
-- KEYS: 1 the lock · 2 its queue · 3 its counter · 4 the marker
-- ARGV: 1 the number of this change of the text; 0: the text stays · 2 the text · 3 "1": a writer becomes a reader
--       4 the slot, "r" or "w"; nothing: a plain lock · 5 the incarnation · 6 what the counter was before the hold
--       began · 7 the owner id
-- Returns 1; 0: this is not that hold any more; or the error HFOUT.

local K, Q, mode, inc, owner = KEYS[1], KEYS[2], ARGV[4], ARGV[5], ARGV[7]
local m = redis.call('GET', KEYS[4])
if not m or string.sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this incarnation') end
local start = 'rl1\031' .. owner .. '\031' .. ARGV[6] .. '\031'

-- Returns what a hold says, with the new text, and the mode of a reader.
local function amended(v)
  local head, pid, letter, number, text = string.match(
    v, '^(rl1' .. string.rep('\031[^\031]*', 6) .. '\031)(%d+)(%a?)(%d*)\031(.*)$')
  if not head then return v end
  if ARGV[3] == '1' then letter = 'r' end
  if tonumber(ARGV[1]) > (tonumber(number) or 0) then
    if letter == '' then letter = 'l' end
    number, text = ARGV[1], ARGV[2]
  end
  return head .. pid .. letter .. number .. '\031' .. text
end

if mode == '' then
  local v = redis.call('GET', K)
  if not v or string.sub(v, 1, #start) ~= start then return 0 end
  redis.call('SET', K, amended(v), 'KEEPTTL')
  return 1
end
--@include shared.lua
--@include wake_shared.lua
local reader = 'r' .. owner
local field = mode == 'r' and reader or mode
local left, v = lasting(field, start)
if not left and ARGV[3] == '1' then -- it may be a reader's already
  field = reader
  left, v = lasting(field, start)
end
if not left then return 0 end
if ARGV[3] ~= '1' or field == reader then
  redis.call('HSET', H, field, amended(v))
  return 1
end
redis.call('HSET', H, reader, amended(v))
last(reader, left)
drop(field)
redis.call('INCR', KEYS[3]) -- so that the readers to come have higher tokens than the writer
redis.call('DEL', I)
if redis.call('EXISTS', Q) == 1 then wake() end
return 1
