-- Included by the scripts that read a node's counters: finds the highest of them.
--
-- Needs the local m (the marker, or false) and KEYS[2] (the counters in use). Makes the local highest.

local highest = tonumber(string.match(m or '', '^[^\031]*\031%d+\031(%d+)')) or 0
local used = redis.call('LRANGE', KEYS[2], 0, -1)
for i = 1, #used, 1000 do -- more would be too many arguments
  local values = redis.call('MGET', unpack(used, i, math.min(i + 999, #used)))
  for j = 1, #values do highest = math.max(highest, tonumber(values[j] or 0)) end
end
