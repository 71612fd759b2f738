-- Included by the scripts that may leave room in a lock that several may hold: wakes the waiters here who fit, the first
-- of them first. A hint, as in wake.lua. Of a semaphore's waiters one is woken for each slot that is given back; of a
-- read/write lock's all readers before the first writer, and that writer when nobody holds the lock. Waiters whose
-- connection is gone are dropped.
--
-- Needs the locals K (the lock) and Q (the queue), and shared.lua.

local function wake()
  local held, wanted = is_held(), redis.call('EXISTS', I) == 1
  for _, owner in ipairs(redis.call('LRANGE', Q, 0, 999)) do
    local text = redis.call('GET', K .. ':w:' .. owner)
    local channel, mode = string.match(text or '', '^%d+\031([^\031]*)\031%d+\031[^\031]*\031%d+(%a?)')
    local fits = (mode == 'r' and not wanted) or (mode == 'w' and not held) or mode == 's'
    if not channel or (fits and redis.call('PUBLISH', channel, owner .. ' 0') == 0) then
      redis.call('LREM', Q, 1, owner)
      redis.call('DEL', K .. ':w:' .. owner)
    elseif mode ~= 'r' then
      return
    end
  end
end
