-- Included by the scripts of locks that several may hold at once: semaphores and read/write locks.
--
-- The lock key of such a lock says only its kind and capacity: rls1, kind, capacity, with the byte 31 between. Its holds are fields of the hash :h,
-- each with the text that the key of a plain lock would have: the number of a slot; "w", the writer; or "r" and the
-- owner id of a reader. When each ends is in the sorted set :e, in ms of this node's clock. :m has a bit for each slot
-- that is taken, and :i the writer that readers make way for. All of these keys end by themselves, some time after
-- the last hold.
--
-- Needs the local K (the lock). Makes the locals H, E, M, I and now, and the functions below.

local H, E, M, I = K .. ':h', K .. ':e', K .. ':m', K .. ':i'
local moment = redis.call('TIME')
local now = moment[1] * 1000 + math.floor(moment[2] / 1000)

-- Ends a hold.
local function drop(field)
  redis.call('HDEL', H, field)
  redis.call('ZREM', E, field)
  if tonumber(field) then redis.pcall('SETBIT', M, field, 0) end -- refused where memory is out: then it stays a hint
end

-- Ends the holds whose time is over. Returns whether any is left; if not, nothing is left of the lock.
local function is_held()
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', E, '-inf', now, 'LIMIT', 0, 1000)) do drop(field) end
  if redis.call('EXISTS', E) == 1 then return true end
  local v = redis.call('GET', K)
  if v and string.sub(v, 1, 5) == 'rls1\031' then redis.call('DEL', K, M) end
  return false
end

-- Returns for how many ms a hold lasts; nothing if it is over, or not that of `start`: of the very owner and beginning.
local function lasting(field, start)
  local v = redis.call('HGET', H, field)
  if not v or string.sub(v, 1, #start) ~= start then return nil end
  local left = redis.call('ZSCORE', E, field) - now
  if left > 0 then return left, v end
end

-- Lets a hold last for so many ms, and the keys of the lock for longer, so that this is seldom to be done. Returns
-- whether the node had the memory for it.
local function last(field, ttl)
  local set = redis.pcall('ZADD', E, now + ttl, field)
  if type(set) == 'table' and set.err then return false end
  if redis.call('PTTL', K) < tonumber(ttl) then
    for _, key in ipairs({ K, H, E, M }) do redis.call('PEXPIRE', key, 2 * ttl) end
  end
  return true
end

-- Returns the ms after which somebody who wants that ("r", "w", or a slot of so many) may have it; 0: now.
local function busy_for(mode, capacity)
  if not is_held() then return mode == 'r' and math.max(0, redis.call('PTTL', I)) or 0 end
  if mode == 'w' then return redis.call('ZREVRANGE', E, 0, 0, 'WITHSCORES')[2] - now end
  if mode == 'r' then
    local ends = redis.call('ZSCORE', E, 'w')
    return math.max(ends and ends - now or 0, redis.call('PTTL', I), 0)
  end
  if redis.call('ZCARD', E) < tonumber(capacity) then return 0 end
  return redis.call('ZRANGE', E, 0, 0, 'WITHSCORES')[2] - now
end
