-- Included by the scripts that read a hold, or renew it: since when it has been held. Reading the clock costs a
-- grant a tenth of its script, so a hold is only dated when it is first renewed. Until then it began its ttl,
-- less what is left of it, ago.

-- Returns what a lock key says, dated; and whether it was not dated yet.
local function dated(v, left)
  local head, ttl, tail = string.match(v, '^(rl1\031[^\031]*\031%d+\031%d*\031)\031(%d+)(.*)$')
  if not head then return v, false end
  local time = redis.call('TIME')
  local since = time[1] * 1000000 + time[2] - (ttl - left) * 1000
  return head .. string.format('%.0f', since) .. '\031' .. ttl .. tail, true
end
