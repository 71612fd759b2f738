-- Free a lease, or leave the queue, and hand on to whoever is next: one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 ms for which a tombstone refuses this owner, 0 for none · 2 the owner id
-- Answers 1 if a lease that had not ended was freed, otherwise 0.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[2]

-- The common case first: it is the only holder, and nobody waits.
if ARGV[1] == '0' and redis.call('EXISTS', Q) == 0 then
  local holder = redis.call('GET', K)
  if holder and string.sub(holder, 1, 5 + #owner) == 'hf1\031' .. owner .. '\031' then
    redis.call('DEL', K)
    return 1
  end
end

--@include redis_queue.lua

local freed = 0
local mine = waiter_key(owner)
if has(owner) then
  call('DEL', K)
  v = false
  freed = 1
  settle('')
else
  if shared() then
    weigh()
    if call('HEXISTS', H, owner) == 1 then
      drop(owner)
      cover()
      freed = 1
      settle('')
    end
  end
  local known = freed == 0 and call('GET', mine)
  if known and known ~= 'x' then
    call('DEL', mine)
    call('LREM', Q, 1, owner)
    settle('')
  end
end
if ARGV[1] ~= '0' then call('SET', mine, 'x', 'PX', ARGV[1]) end
return freed
