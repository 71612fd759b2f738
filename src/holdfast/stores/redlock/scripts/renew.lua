-- Renews holds on one node, many at once. Never shortens one, creates nothing, and knows only the very hold.
--
-- KEYS: 1 the marker · 2 … the locks
-- ARGV: 1 the incarnation · for each lock its owner id, what its counter was before the hold began, its ttl in ms, and
--       its slot, "r" or "w"; nothing: it is a plain lock
-- Returns for each 1 (renewed), 0 (not that hold) or 2 (it could not be renewed); or the error HFOUT.

local m = redis.call('GET', KEYS[1])
if not m or string.sub(m, 1, #ARGV[1]) ~= ARGV[1] then return redis.error_reply('HFOUT it does not vote in this incarnation') end
--@include since.lua

-- Renews a hold beside others.
local function renewed_shared(K, field, start, ttl)
--@include shared.lua
  local left, v = lasting(field, start)
  if not left then return 0 end
  if left < tonumber(ttl) then
    local text, new = dated(v, left)
    if new then redis.pcall('HSET', H, field, text) end
    if not last(field, ttl) then return 2 end
  end
  return 1
end

local answers = {}
for i = 2, #KEYS do
  local a = 4 * i - 6
  local ttl, mode = ARGV[a + 2], ARGV[a + 3]
  local start = 'rl1\031' .. ARGV[a] .. '\031' .. ARGV[a + 1] .. '\031'
  if mode ~= '' then
    answers[i - 1] = renewed_shared(KEYS[i], mode == 'r' and 'r' .. ARGV[a] or mode, start, ttl)
  else
    local v = redis.pcall('GET', KEYS[i]) -- no text: another program has put something else there
    if type(v) == 'string' and string.sub(v, 1, #start) == start then
      local left = redis.call('PTTL', KEYS[i])
      if left < tonumber(ttl) then
        local text, new = dated(v, left)
        -- A node that is out of memory refuses the longer text. The lease matters more than its date.
        if not new or redis.pcall('SET', KEYS[i], text, 'PX', ttl).err then
          redis.call('PEXPIRE', KEYS[i], ttl)
        end
      end
      answers[i - 1] = 1
    else
      answers[i - 1] = 0
    end
  end
end
return answers
