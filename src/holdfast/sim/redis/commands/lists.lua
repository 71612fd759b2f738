-- Commands of a simulated Redis on lists: an array, from the left.

local data, commands = ...
local NONE = {}

local function make(key)
  local line = data.find(key, 'list')
  if not line then
    line = { kind = 'list' }
    data.values[key] = line
  end
  return line
end

local function replace(line, items)
  for i = 1, math.max(#line, #items) do
    line[i] = items[i]
  end
end

function commands.RPUSH(key, ...)
  local line = make(key)
  for i = 1, select('#', ...) do
    line[#line + 1] = select(i, ...)
  end
  return #line
end

function commands.LPUSH(key, ...)
  local line = make(key)
  for i = 1, select('#', ...) do
    table.insert(line, 1, (select(i, ...)))
  end
  return #line
end

function commands.LPOP(key)
  local line = data.find(key, 'list')
  if not line then return false end
  local item = table.remove(line, 1)
  data.tidy(key, #line)
  return item
end

function commands.LINDEX(key, index)
  local line, i = data.find(key, 'list') or NONE, data.integer(index)
  return line[i < 0 and #line + i + 1 or i + 1] or false
end

function commands.LRANGE(key, start, stop)
  local line, items = data.find(key, 'list') or NONE, {}
  local first, last = data.span(start, stop, #line)
  for i = first, last do
    items[#items + 1] = line[i]
  end
  return items
end

function commands.LTRIM(key, start, stop)
  local line = data.find(key, 'list')
  if line then
    replace(line, commands.LRANGE(key, start, stop))
    data.tidy(key, #line)
  end
  return { ok = 'OK' }
end

function commands.LREM(key, count, item)
  local line = data.find(key, 'list')
  if not line then return 0 end
  local most, first, last, step = data.integer(count), 1, #line, 1
  if most < 0 then
    first, last, step = #line, 1, -1
  end
  local left, gone = most == 0 and #line or math.abs(most), {}
  for i = first, last, step do
    if line[i] == item and left > 0 then
      gone[i], left = true, left - 1
    end
  end
  local kept, before = {}, #line
  for i = 1, before do
    if not gone[i] then kept[#kept + 1] = line[i] end
  end
  replace(line, kept)
  data.tidy(key, #line)
  return before - #kept
end

function commands.LPOS(key, item)
  for i, one in ipairs(data.find(key, 'list') or NONE) do
    if one == item then return i - 1 end
  end
  return false
end
