-- What the scripts about leases have in common; it is put before each of them.
-- KEYS of each begin with: 1 meta, 2 leases, 3 held, 4 live, 5 outbox.
-- A lease is a list of texts, stored as so many lines: 1 what it is now (live, over), 2 what the query's owner has
-- folded of it ('' = nothing, live, over), 3 begin, 4 until (microseconds), 5 item, 6 analyst, 7 rank, 8 score,
-- 9 mean, 10 level, 11 by; '' where nobody said.
local function read_lease(text)
  local lease = {}
  for line in string.gmatch(text, '([^\n]*)\n') do
    lease[#lease + 1] = line
  end
  return lease
end

local function get_lease(id)
  local text = redis.call('HGET', KEYS[2], id)
  return text and read_lease(text)
end

-- Of one that is over nobody asks here what it was served at: the topic has that.
local function put_lease(id, lease)
  local last = lease[1] == 'over' and 6 or 11
  redis.call('HSET', KEYS[2], id, table.concat(lease, '\n', 1, last) .. string.rep('\n', 12 - last))
end

-- A script that is refused in the middle stays as far as it came, and may be run again. So the lease itself, which
-- says what was done, is written last, and `held`, which must not count twice, just before it, by the same command.

-- How many leases on an item are not over.
local function held_by(item)
  return tonumber(redis.call('HGET', KEYS[3], item) or '0')
end

-- Whether the query is in its partition's set of those that have leases, by which its owner looks after them: the set
-- lies elsewhere, so whoever puts a query into it says so, and before a lease is stored. `any`: whether one is to be.
local function is_listed(any, said)
  if any and redis.call('HEXISTS', KEYS[1], 'leased') == 0 then
    if said ~= '1' then
      return false
    end
    redis.call('HSET', KEYS[1], 'leased', '1')
  end
  return true
end

-- Store a new lease that is not over.
local function begin_lease(id, lease)
  local held = held_by(lease[5])
  redis.call('ZADD', KEYS[4], lease[4], id)
  redis.call('HSET', KEYS[3], lease[5], held + 1)
  put_lease(id, lease)
end

-- Let a lease be over that is not.
local function end_lease(id, lease)
  local held = held_by(lease[5])
  redis.call('ZREM', KEYS[4], id)
  if held > 1 then
    redis.call('HSET', KEYS[3], lease[5], held - 1)
  else
    redis.call('HDEL', KEYS[3], lease[5])
  end
  lease[1] = 'over'
  put_lease(id, lease)
end

-- Whether `held` counts as many leases as are not over; else somebody else was at a key. Nearly always each is on an item
-- of its own.
local function adds_up()
  local leases = redis.call('ZCARD', KEYS[4])
  if redis.call('HLEN', KEYS[3]) == leases then
    return true
  end
  local counted = 0
  for _, count in ipairs(redis.call('HVALS', KEYS[3])) do
    counted = counted + (tonumber(count) or 0)
  end
  return counted == leases
end

-- Have `held` and `live` say what the leases do, where somebody else was at a key or a claim was refused in the middle.
-- Whose item nobody can say holds something until its time is over: until then `held` stays as it is.
local function heal()
  for _, id in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    if redis.call('HEXISTS', KEYS[2], id) == 0 then
      return
    end
  end
  local counts, all = {}, redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    local lease = read_lease(all[i + 1])
    if lease[1] == 'live' and lease[5] and tonumber(lease[4]) then  -- else it is no lease
      redis.call('ZADD', KEYS[4], lease[4], all[i])
      counts[lease[5]] = (counts[lease[5]] or 0) + 1
    end
  end
  for item, count in pairs(counts) do
    redis.call('HSET', KEYS[3], item, count)
  end
  for _, item in ipairs(redis.call('HKEYS', KEYS[3])) do
    if not counts[item] then
      redis.call('HDEL', KEYS[3], item)
    end
  end
end

-- Put what happened into the outbox: the action, when, the lease's id, and the lease; and the correlation id of the
-- request that did it, '' where it was none. An end is told before it is made: told twice it is one fact, and made
-- but not told it would never be.
local function tell(action, now, id, lease, correlation)
  redis.call('XADD', KEYS[5], '*', 'fact', table.concat({action, now, id, ''}, '\n') .. table.concat(lease, '\n') .. '\n',
    'correlation', correlation)
end

-- Take in a fact from the topic: `over` ends the lease, else the greatest `until` holds.
local function merge_lease(id, over, said)
  local lease = get_lease(id)
  if not lease then
    said[2] = over and 'over' or 'live'
    said[1] = said[2]
    if over then
      put_lease(id, said)
    else
      begin_lease(id, said)
    end
    return
  end
  if lease[2] ~= 'over' then
    lease[2] = over and 'over' or 'live'
  end
  lease[3] = tonumber(said[3]) < tonumber(lease[3]) and said[3] or lease[3]
  if lease[1] == 'over' then
    put_lease(id, lease)
  elseif over then
    end_lease(id, lease)
  else
    lease[4] = tonumber(said[4]) > tonumber(lease[4]) and said[4] or lease[4]
    put_lease(id, lease)
    redis.call('ZADD', KEYS[4], lease[4], id)
  end
end

-- Microseconds since the epoch, in digits. The server's clock is the only one: whoever claims asks it, and so does
-- whoever says that a lease is over.
local function clock()
  local time = redis.call('TIME')
  return time[1] .. string.format('%06d', time[2])
end

local function later(now, microseconds)
  return string.format('%.0f', tonumber(now) + tonumber(microseconds))
end

-- Why nothing may be claimed, or nil.
local function refusal()
  local partition = redis.call('HGET', KEYS[1], 'partition')
  if not partition then
    return 'unknown_query'
  elseif redis.call('HEXISTS', KEYS[1], 'rebuilding') == 1 then
    return 'rebuilding'
  elseif redis.call('HGET', KEYS[1], 'fingerprint') == 'deleted' then
    return 'query_deleted'
  end
  return nil
end
