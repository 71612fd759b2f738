-- Commands of a simulated Redis on sorted sets: scores by member, put in order when they are asked for.

local data, commands = ...

local function text(score)
  return string.format(score % 1 == 0 and '%d' or '%.17g', score)
end

function commands.ZADD(key, ...)
  local set, words = data.find(key, 'sorted'), { ... }
  if not set then
    set = { kind = 'sorted', count = 0, scores = {} }
    data.values[key] = set
  end
  local before = set.count
  for i = 1, #words, 2 do
    if set.scores[words[i + 1]] == nil then set.count = set.count + 1 end
    set.scores[words[i + 1]] = tonumber(words[i])
  end
  return set.count - before
end

function commands.ZREM(key, ...)
  local set = data.find(key, 'sorted')
  if not set then return 0 end
  local before = set.count
  for i = 1, select('#', ...) do
    local member = select(i, ...)
    if set.scores[member] ~= nil then
      set.scores[member], set.count = nil, set.count - 1
    end
  end
  data.tidy(key, set.count)
  return before - set.count
end

function commands.ZSCORE(key, member)
  local set = data.find(key, 'sorted')
  local score = set and set.scores[member]
  return score and text(score) or false
end

function commands.ZCARD(key)
  local set = data.find(key, 'sorted')
  return set and set.count or 0
end

-- From the lowest score to the highest.
local function ordered(key)
  local set, rows = data.find(key, 'sorted'), {}
  for member, score in pairs(set and set.scores or {}) do
    rows[#rows + 1] = { member, score }
  end
  table.sort(rows, function(a, b)
    if a[2] == b[2] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  return rows
end

local function show(shown, row, option)
  shown[#shown + 1] = row[1]
  if option and string.upper(option) == 'WITHSCORES' then shown[#shown + 1] = text(row[2]) end
end

function commands.ZRANGE(key, start, stop, option)
  local rows, shown = ordered(key), {}
  local first, last = data.span(start, stop, #rows)
  for i = first, last do
    show(shown, rows[i], option)
  end
  return shown
end

function commands.ZREVRANGE(key, start, stop, option)
  local rows, shown = ordered(key), {}
  local first, last = data.span(start, stop, #rows)
  for i = first, last do
    show(shown, rows[#rows + 1 - i], option)
  end
  return shown
end

-- A bound, and whether it is itself outside.
local function bound(word)
  local open = string.sub(word, 1, 1) == '('
  local number = open and string.sub(word, 2) or word
  if string.find(number, 'inf$') then
    return (string.sub(number, 1, 1) == '-' and -1 or 1) * math.huge, open
  end
  return tonumber(number), open
end

-- With scores, or with a limit from the first on.
function commands.ZRANGEBYSCORE(key, low, high, option, _, count)
  local least, over = bound(low)
  local most, under = bound(high)
  local shown = {}
  for _, row in ipairs(ordered(key)) do
    local score = row[2]
    local above = score > least or (score == least and not over)
    local below = score < most or (score == most and not under)
    if above and below and #shown < (tonumber(count) or math.huge) then show(shown, row, option) end
  end
  return shown
end
