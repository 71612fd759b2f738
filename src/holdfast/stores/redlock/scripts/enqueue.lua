-- Included by the scripts that register a waiter.
--
-- Needs the locals K, Q, left, mine (the waiter's key), channel and owner, ARGV[1] and ARGV[2].

local text = redis.call('GET', mine) or ''
if text == 'left' then return -1 - left end
local since = string.match(text, '^%d+')
if not since then
  local time = redis.call('TIME')
  since = time[1] .. string.sub('00000' .. time[2], -6)
  redis.call('LREM', Q, 0, owner)
  redis.call('RPUSH', Q, owner)
end
redis.call('SET', mine, since .. '\031' .. channel .. '\031' .. ARGV[2], 'PX', ARGV[1])
redis.call('PEXPIRE', Q, 3600000)
