-- Phase 1 of a grant, on one node: if the lock is free, take it, raise the counter by one, and keep its
-- value beside the owner: the value at which this hold began. Asked again, the same hold answers the same.
--
-- Several requests may come together; each is as if it had come alone.
--
-- KEYS: 1 the counters · 2 the marker · 3 … the locks
-- ARGV: for each lock 1 ttl in ms · 2 the request (see redlock/commands.py) · 3 the stripe, a field of the
--       counters · 4 the owner id of this round; behind all of them the incarnation in which this node is
--       believed to vote
-- Answers the value, or {value, known}: other nodes' incarnations that this one knows of; or
-- {-1, ms, owner}: another has it, for that long; or the error HFLEFT (this owner has left already). Of
-- several, a list of such. Or the error HFOUT: this node does not vote, or not in this incarnation.

local call, sub = redis.call, string.sub
local C, inc, m = KEYS[1], ARGV[#ARGV], nil

local function take(K, ttl, request, stripe, owner)
  local found
  if m then
    found = call('MGET', K, K .. ':x:' .. owner)
  else
    found = call('MGET', K, K .. ':x:' .. owner, KEYS[2])
    m = found[3]
    if not m or sub(m, 1, #inc) ~= inc then return redis.error_reply('HFOUT it does not vote in this life') end
  end
  local v, begin = found[1], nil
  if not v and not found[2] then
    begin = call('HINCRBY', C, stripe, 1)
    local text = string.format('%.0f', begin)
    if begin == 1 then
      begin = tonumber(string.match(m, '^[^\031]*\031%d+\031(%d+)')) + 1
      text = string.format('%.0f', begin)
      call('HSET', C, stripe, text)
    end
    -- Not dated yet, see redlock_since.lua.
    call('SET', K, 'rl1\031' .. owner .. '\031' .. text .. '\031' .. text .. '\031\031' .. request, 'PX', ttl)
  else
    if not v then return redis.error_reply('HFLEFT this owner has left') end
    local holder, value = string.match(v, '^rl1\031([^\031]*)\031(%d+)')
    local ms = call('PTTL', K)
    if holder ~= owner then return { -1, ms, holder or '' } end
    if ms < tonumber(ttl) then call('PEXPIRE', K, ttl) end
    begin = tonumber(value)
  end
  -- Mostly nothing is known of others, and the marker ends there: a pattern would look at all of it.
  if sub(m, -1) == '\031' then return begin end
  return { begin, string.match(m, '[^\031]*$') }
end

local first = take(KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if not KEYS[4] or not m or sub(m, 1, #inc) ~= inc then return first end
local answers = { first }
for i = 4, #KEYS do
  local a = 4 * i - 11
  answers[i - 2] = take(KEYS[i], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
end
return answers
