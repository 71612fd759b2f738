-- Commands of a simulated Redis on hashes: fields by name, and how many there are.

local data, commands = ...

local function make(key)
  local hash = data.find(key, 'hash')
  if not hash then
    hash = { kind = 'hash', count = 0, fields = {} }
    data.values[key] = hash
  end
  return hash
end

local function put(hash, name, value)
  if hash.fields[name] == nil then hash.count = hash.count + 1 end
  hash.fields[name] = value
end

function commands.HGET(key, name)
  local hash = data.find(key, 'hash')
  return hash and hash.fields[name] or false
end

function commands.HMGET(key, ...)
  local hash, found = data.find(key, 'hash'), { ... }
  for i = 1, #found do
    found[i] = hash and hash.fields[found[i]] or false
  end
  return found
end

function commands.HSET(key, ...)
  local hash, words = make(key), { ... }
  local before = hash.count
  for i = 1, #words, 2 do
    put(hash, words[i], words[i + 1])
  end
  return hash.count - before
end

function commands.HDEL(key, ...)
  local hash = data.find(key, 'hash')
  if not hash then return 0 end
  local before = hash.count
  for i = 1, select('#', ...) do
    local name = select(i, ...)
    if hash.fields[name] ~= nil then
      hash.fields[name], hash.count = nil, hash.count - 1
    end
  end
  data.tidy(key, hash.count)
  return before - hash.count
end

function commands.HINCRBY(key, name, by)
  local hash = make(key)
  local value = data.integer(hash.fields[name] or '0') + data.integer(by)
  put(hash, name, string.format('%d', value))
  return value
end

function commands.HEXISTS(key, name)
  local hash = data.find(key, 'hash')
  return hash and hash.fields[name] ~= nil and 1 or 0
end

function commands.HGETALL(key)
  local hash, names, shown = data.find(key, 'hash'), {}, {}
  for name in pairs(hash and hash.fields or {}) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    shown[#shown + 1] = name
    shown[#shown + 1] = hash.fields[name]
  end
  return shown
end
