-- Ends a lease, or takes a waiter out of the queue, and hands on to the next waiter: in one step.
--
-- KEYS: 1 the lock · 2 its queue (":q") · 3 the counter of tokens
-- ARGV: 1 US owner id US · 2 only if this owner is to be refused from now on: for how many ms
-- Returns 1 if a lease that had not ended was released, otherwise 0.

local K, Q, C = KEYS[1], KEYS[2], KEYS[3]
local between = ARGV[1]

-- The common cases first: a lock with this holder and no waiters, or a plain lock with one to which it is simply
-- handed. They do what the rest below would do.
if not ARGV[2] then
  local call, sub = redis.call, string.sub
  local v = call('GET', K)
  if v and sub(v, 4, 3 + #between) == between then
    local h, f, flag = string.byte(v, 1, 3)
    if h ~= 104 or f ~= 102 then flag = 0 end
    if flag == 49 or flag == 51 then
      call('DEL', K)
      return 1
    end
    while flag == 50 do
      local following = call('LPOP', Q)
      if not following then
        call('DEL', K)
        return 1
      end
      if string.byte(following) == 31 then -- a waiter that is only woken
        call('LPUSH', Q, following)
        break
      end
      local key = Q .. ':' .. following
      local text = call('GETDEL', key)
      if text then
        local channel, request, claim = string.match(
          text, '^%d*\031([^\031]*)\031(1\0311\031lock\0310\031%d+\031(%d+)\031.*)$')
        if not channel then -- a tombstone
          call('SET', key, text, 'PX', 60000)
          break
        end
        -- Not by the reply to PUBLISH: see `settle` in queue.lua.
        if call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
          local time = call('TIME')
          local second, micro = time[1], time[2]
          local now = #micro == 6 and second .. micro or second .. sub('00000' .. micro, -6)
          local token, since = now, ''
          local last = call('SET', C, now, 'GET')
          if last and (#last ~= #now or last >= now) then
            local higher = (tonumber(last) or 0) + 1
            if higher > tonumber(now) then
              token, since = string.format('%.0f', higher), now
              call('SET', C, token)
            end
          end
          call('PUBLISH', channel, following .. ' ' .. token)
          call('SET', K, 'hf2\031' .. following .. '\031' .. token .. '\031' .. since .. '\031' .. request, 'PX', claim)
          -- A queue that is never empty lives on; this is often enough.
          if #micro < 5 then call('PEXPIRE', Q, 7200000) end
          return 1
        end
      end
    end
  end
end

--@include queue.lua

local owner = sub(between, 2, -2)
local freed = 0
local mine = waiter_key(owner)
if has(owner) then
  local led = match(holder_text(), LEADER)
  call('DEL', K)
  v = false
  freed = 1
  settle('')
  if led then vacate(led) end
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
  local waiter = known and read(known)
  if waiter then
    call('DEL', mine)
    call('LREM', Q, 0, place(owner, waiter))
    settle('')
  end
end
if ARGV[2] then call('SET', mine, 'x', 'PX', ARGV[2]) end
return freed
