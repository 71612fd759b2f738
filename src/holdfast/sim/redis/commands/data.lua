-- The database of a simulated Redis that is at work, and what its commands share. A string is one of Lua's; of
-- anything else the field `kind` says what it is.
--
-- Answers a table: what is in `data` is for all; `values` and `ends` are those of the database, by key.

local WRONG = 'WRONGTYPE Operation against a key holding the wrong kind of value'
local data = { values = {}, ends = {}, micros = 0, now = 0 }

function data.drop(key)
  local was = data.values[key] ~= nil
  data.values[key], data.ends[key] = nil, nil
  return was
end

-- Whether it is there, and has not ended.
function data.has(key)
  local ends = data.ends[key]
  if ends and ends <= data.now then data.drop(key) end
  return data.values[key] ~= nil
end

-- The string that it is, or nil.
function data.text(key)
  local value = data.values[key]
  if value == nil then return nil end
  local ends = data.ends[key]
  if ends and ends <= data.now then
    data.drop(key)
    return nil
  end
  if type(value) ~= 'string' then error(WRONG, 0) end
  return value
end

-- What it is, of that kind, or nil.
function data.find(key, kind)
  if not data.has(key) then return nil end
  local value = data.values[key]
  if type(value) == 'string' or value.kind ~= kind then error(WRONG, 0) end
  return value
end

-- A collection that is empty does not exist.
function data.tidy(key, count)
  if count == 0 then data.drop(key) end
end

function data.integer(text)
  if not string.find(text, '^-?%d+$') then error('ERR value is not an integer or out of range', 0) end
  return tonumber(text)
end

-- The first and the last of so many that two indices stand for, which may count from the end.
function data.span(start, stop, length)
  local first, last = data.integer(start), data.integer(stop)
  if first < 0 then first = math.max(0, first + length) end
  if last < 0 then last = last + length end
  return first + 1, math.min(last + 1, length)
end

return data
