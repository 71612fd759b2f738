-- Commands of a simulated Redis on keys, and on those that are strings.

local data, commands = ...
local format, floor = string.format, math.floor
local ok = { ok = 'OK' }

function commands.GET(key)
  return data.text(key) or false
end

local function lifetime(word, unit)
  local ms = data.integer(word) * unit
  if ms <= 0 then error("ERR invalid expire time in 'set' command", 0) end
  return ms
end

function commands.SET(key, value, option, number, ...)
  if option == nil then
    data.values[key], data.ends[key] = value, nil
    return ok
  end
  if option == 'PX' and select('#', ...) == 0 then -- by far the most common
    data.values[key], data.ends[key] = value, data.now + lifetime(number, 1)
    return ok
  end
  local words, i = { option, number, ... }, 1
  local ends, keep, only_new, only_old, give_old
  while words[i] do
    local word = string.upper(words[i])
    if word == 'PX' or word == 'EX' then
      i = i + 1
      ends = data.now + lifetime(words[i], word == 'EX' and 1000 or 1)
    elseif word == 'NX' then
      only_new = true
    elseif word == 'XX' then
      only_old = true
    elseif word == 'GET' then
      give_old = true
    elseif word == 'KEEPTTL' then
      keep = true
    else
      error('ERR syntax error', 0)
    end
    i = i + 1
  end
  local old = give_old and (data.text(key) or false)
  local exists = data.has(key)
  if (only_new and exists) or (only_old and not exists) then return old or false end
  data.values[key] = value
  if ends or not keep then data.ends[key] = ends end
  if give_old then return old end
  return ok
end

function commands.MGET(...)
  local found = { ... }
  local values, ends = data.values, data.ends
  for i = 1, #found do
    local key = found[i]
    local value = values[key]
    if type(value) ~= 'string' or (ends[key] and not data.has(key)) then value = false end
    found[i] = value
  end
  return found
end

function commands.GETDEL(key)
  local value = data.text(key)
  if value then data.drop(key) end
  return value or false
end

function commands.SETRANGE(key, offset, text)
  local value, start = data.text(key) or '', data.integer(offset)
  if text == '' then return #value end
  value = value .. string.rep('\0', start - #value)
  value = string.sub(value, 1, start) .. text .. string.sub(value, start + #text + 1)
  data.values[key] = value
  return #value
end

function commands.GETRANGE(key, start, stop)
  local value = data.text(key) or ''
  local first, last = data.span(start, stop, #value)
  return string.sub(value, first, last)
end

function commands.SETBIT(key, offset, bit)
  local value, place = data.text(key) or '', data.integer(offset)
  local byte, power = floor(place / 8), 2 ^ (7 - place % 8)
  value = value .. string.rep('\0', byte + 1 - #value)
  local was = string.byte(value, byte + 1)
  local old = floor(was / power) % 2
  local new = string.char(was + (data.integer(bit) - old) * power)
  data.values[key] = string.sub(value, 1, byte) .. new .. string.sub(value, byte + 2)
  return old
end

-- Without a range.
function commands.BITPOS(key, bit)
  local value, wanted = data.text(key), data.integer(bit)
  if not value then return wanted == 1 and -1 or 0 end
  for place = 0, 8 * #value - 1 do
    if floor(string.byte(value, floor(place / 8) + 1) / 2 ^ (7 - place % 8)) % 2 == wanted then return place end
  end
  return wanted == 1 and -1 or 8 * #value
end

function commands.DEL(...)
  local gone = 0
  for i = 1, select('#', ...) do
    local key = select(i, ...)
    if data.has(key) and data.drop(key) then gone = gone + 1 end
  end
  return gone
end

function commands.EXISTS(...)
  local count = 0
  for i = 1, select('#', ...) do
    if data.has((select(i, ...))) then count = count + 1 end
  end
  return count
end

function commands.INCRBY(key, by)
  local value = data.integer(data.text(key) or '0') + data.integer(by)
  data.values[key] = format('%d', value)
  return value
end

function commands.INCR(key)
  return commands.INCRBY(key, '1')
end

function commands.PTTL(key)
  if not data.has(key) then return -2 end
  local ends = data.ends[key]
  return ends and ends - data.now or -1
end

local function expire(key, ends)
  if not data.has(key) then return 0 end
  data.ends[key] = ends
  if ends <= data.now then data.drop(key) end
  return 1
end

function commands.PEXPIRE(key, ms)
  return expire(key, data.now + data.integer(ms))
end

function commands.PEXPIREAT(key, at)
  return expire(key, data.integer(at))
end

-- Of patterns, what we use: `*`, and `\` before a character that stands for itself.
local function pattern(glob)
  local escaped, parts = false, { '^' }
  for c in string.gmatch(glob, '.') do
    if not escaped and c == '\\' then
      escaped = true
    else
      if c == '*' and not escaped then
        parts[#parts + 1] = '.*'
      else
        parts[#parts + 1] = string.find(c, '%w') and c or '%' .. c
      end
      escaped = false
    end
  end
  return table.concat(parts) .. '$'
end

-- All at once, whatever the count.
function commands.SCAN(cursor, ...)
  local words, wanted, keys = { ... }, '', {}
  for i = 1, #words, 2 do
    if string.upper(words[i]) == 'MATCH' then wanted = pattern(words[i + 1]) end
  end
  for key in pairs(data.values) do
    if string.find(key, wanted) then keys[#keys + 1] = key end
  end
  table.sort(keys)
  local alive = {}
  for _, key in ipairs(keys) do
    if data.has(key) then alive[#alive + 1] = key end
  end
  return { '0', alive }
end

function commands.TIME()
  local seconds = floor(data.micros / 1000000)
  return { format('%d', seconds), format('%d', data.micros - seconds * 1000000) }
end
