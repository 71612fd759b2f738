-- Included by the scripts that may leave a lock free: wakes the first waiter here, and only that one. It is a
-- hint; nothing is handed over, because the majority decides. Waiters whose connection is gone are dropped.
--
-- The key :b is there while a waiter may be. A release deletes it together with the lock, in one call, and so
-- knows whether to look at the queue.
--
-- Needs the locals K (the lock) and Q (the queue).

local function wake()
  while true do
    local first = redis.call('LINDEX', Q, 0)
    if not first then
      redis.call('DEL', K .. ':b')
      return
    end
    local text = redis.call('GET', K .. ':w:' .. first)
    local channel = text and string.match(text, '^%d+\031([^\031]*)')
    if channel and redis.call('PUBLISH', channel, first .. ' 0') > 0 then
      redis.call('SET', K .. ':b', '', 'PX', 3600000) -- that waiter, or others, may wait again
      return
    end
    redis.call('LPOP', Q)
    redis.call('DEL', K .. ':w:' .. first)
  end
end
