-- How commands are called, from scripts and by clients, and how they are answered: in the form in which the
-- protocol sends it, because to look at a value from outside costs more than the command.
--
-- `server` is told those that need more than the data: PUBLISH, and PUBSUB NUMSUB.

local data, commands, server = ...
if jit then jit.off() end -- a run is too short and too varied for it
local format, type, select, pcall = string.format, type, select, pcall

function commands.PUBLISH(channel, message)
  return server('PUBLISH', channel, message)
end

function commands.PUBSUB(...)
  return { server('PUBSUB', ...) }
end

-- Redis formats numbers so, too; one that is too large for that loses its digits.
local function text(v)
  local kind = type(v)
  if kind == 'string' then return v end
  if kind ~= 'number' then error('ERR Lua redis lib command arguments must be strings or integers', 0) end
  if v % 1 == 0 and v < 1e17 and v > -1e17 then return format('%d', v) end
  return format('%.17g', v)
end

local function texts(count, a, b, c, ...)
  if count == 0 then return end
  if count == 1 then return text(a) end
  if count == 2 then return text(a), text(b) end
  if count == 3 then return text(a), text(b), text(c) end
  return text(a), text(b), text(c), texts(count - 3, ...)
end

local function known(name)
  return commands[name] or error("ERR unknown command '" .. name .. "', with args beginning with:", 0)
end

local function asked(name, ...) return known(name)(...) end

local function call(name, key, ...)
  local command = commands[name] or known(name)
  local count = select('#', ...)
  if count == 0 then return command(key) end
  return command(key, texts(count, ...))
end

redis = {
  call = call,
  pcall = function(...)
    local done, answer = pcall(call, ...)
    if done then return answer end
    return { err = tostring(answer) }
  end,
  error_reply = function(words)
    -- One without a space has no code of its own.
    return { err = string.find(words, ' ', 1, true) and words or 'ERR ' .. words }
  end,
  status_reply = function(words) return { ok = words } end,
}

-- One that a script forgot to make local would be kept for the runs to come.
local function refused(_, name)
  error("ERR Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 0)
end
setmetatable(_G, { __index = refused, __newindex = refused })

local function packed(v)
  local kind = type(v)
  if kind == 'number' then return format(':%d\r\n', v) end
  if kind == 'string' then return '$' .. #v .. '\r\n' .. v .. '\r\n' end
  if kind == 'table' then
    if v.err then return '-' .. string.gsub(v.err, '[\r\n]', ' ') .. '\r\n' end
    if v.ok then return '+' .. v.ok .. '\r\n' end
    local parts, count = { '' }, 0
    while v[count + 1] ~= nil do
      count = count + 1
      parts[count + 1] = packed(v[count])
    end
    parts[1] = '*' .. count .. '\r\n'
    return table.concat(parts)
  end
  if v == true then return ':1\r\n' end
  return '_\r\n'
end

local function answer(done, value)
  if not done then value = { err = tostring(value) } end
  return packed(value)
end

local function split(count, ...)
  local keys, args = { ... }, {}
  for i = count + 1, #keys do
    args[i - count] = keys[i]
    keys[i] = nil
  end
  return keys, args
end

-- From now on, on this database; no time passes until it is called again.
local function use(database, micros)
  data.values, data.ends = database.values, database.ends
  data.micros, data.now = micros, math.floor(micros / 1000)
end

local function copied(value)
  if type(value) ~= 'table' then return value end
  local copy = {}
  for k, v in pairs(value) do
    copy[k] = copied(v)
  end
  return copy
end

return {
  database = function() return { values = {}, ends = {} } end,
  copied = copied,
  compiled = function(script)
    return function(database, micros, count, ...)
      use(database, micros)
      return answer(pcall(script, split(count, ...)))
    end
  end,
  ask = function(database, micros, name, ...)
    use(database, micros)
    return answer(pcall(asked, name, ...))
  end,
}
