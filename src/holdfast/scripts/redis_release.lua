-- Free a lease, or leave the queue, and hand on to whoever is next: one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 ms for which a tombstone refuses this owner, 0 for none · 2 the owner id
-- Answers 1 if a lease that had not ended was freed, otherwise 0.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[2]

-- The common case first: one holds it, and nobody waits, or somebody to whom it is simply handed. It does
-- what the rest below would do.
if ARGV[1] == '0' then
  local holder = redis.call('GET', K)
  if holder and string.sub(holder, 1, 5 + #owner) == 'hf1\031' .. owner .. '\031' then
    while true do
      local following = redis.call('LPOP', Q)
      if not following then
        redis.call('DEL', K)
        return 1
      end
      local key = string.sub(Q, 1, -3) .. ':w:' .. following
      local text = redis.call('GET', key)
      if text then
        local channel, request, ttl, claim = string.match(
          text, '^%d+\031([^\031]*)\031(1\0311\031[^\031]*\031(%d+)\031(%d+)\031%d+\0310\031.*)$')
        if not channel then
          redis.call('LPUSH', Q, following)
          break
        end
        redis.call('DEL', key)
        local time = redis.call('TIME')
        local now = time[1] .. string.sub('00000' .. time[2], -6)
        local minted = now
        local last = redis.call('SET', C, now, 'GET')
        if last and tonumber(last) >= tonumber(now) then
          minted = string.format('%.0f', tonumber(last) + 1)
          redis.call('SET', C, minted)
        end
        if redis.call('PUBLISH', channel, following .. ' ' .. minted) > 0 then
          redis.call('SET', K, 'hf1\031' .. following .. '\031' .. minted .. '\031' .. now .. '\031' .. request,
            'PX', math.min(tonumber(claim), tonumber(ttl)))
          return 1
        end
      end
    end
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
    call('LREM', Q, 0, owner)
    settle('')
  end
end
if ARGV[1] ~= '0' then call('SET', mine, 'x', 'PX', ARGV[1]) end
return freed
