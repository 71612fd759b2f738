-- Renews holds on one node, many at once. Never shortens one, creates nothing, and knows only the very hold.
--
-- KEYS: 1 the marker · 2 … the locks
-- ARGV: 1 the incarnation · for each lock its owner id, what its counter was before the hold began, its ttl in ms
-- Returns for each 1 (renewed) or 0 (not that hold); or the error HFOUT.

local m = redis.call('GET', KEYS[1])
if not m or string.sub(m, 1, #ARGV[1]) ~= ARGV[1] then return redis.error_reply('HFOUT it does not vote in this incarnation') end
--@include since.lua

local answers = {}
for i = 2, #KEYS do
  local a = 3 * i - 4
  local start = 'rl1\031' .. ARGV[a] .. '\031' .. ARGV[a + 1] .. '\031'
  local v = redis.pcall('GET', KEYS[i]) -- no text: another program has put something else there
  if type(v) == 'string' and string.sub(v, 1, #start) == start then
    local left = redis.call('PTTL', KEYS[i])
    if left < tonumber(ARGV[a + 2]) then
      local text, new = dated(v, left)
      -- A node that is out of memory refuses the longer text. The lease matters more than its date.
      if not new or redis.pcall('SET', KEYS[i], text, 'PX', ARGV[a + 2]).err then
        redis.call('PEXPIRE', KEYS[i], ARGV[a + 2])
      end
    end
    answers[i - 1] = 1
  else
    answers[i - 1] = 0
  end
end
return answers
