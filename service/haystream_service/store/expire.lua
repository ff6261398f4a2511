-- End the leases whose time is over. KEYS: as `lease_functions`.  ARGV: 1 how many at most, 2 '' or, in microseconds,
-- how late they may have ended: those that end later stay.
-- Answers {how many, leases that are not over, records in the outbox, since when the oldest is there, now, how many more
-- there were of which nothing is known any more}: when in milliseconds, now in microseconds.
local now = clock()
local by = now
if ARGV[2] ~= '' and tonumber(ARGV[2]) < tonumber(now) then
  by = ARGV[2]
end
local expired, lost = 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', by, 'LIMIT', 0, ARGV[1])) do
  local lease = get_lease(id)
  if lease then
    tell('expired', now, id, lease, '')
    end_lease(id, lease)
    expired = expired + 1
  else  -- somebody else was at the key, or a claim was refused in the middle
    redis.call('ZREM', KEYS[4], id)
    lost = lost + 1
  end
end
if lost > 0 then
  heal()
end
local oldest = redis.call('XRANGE', KEYS[5], '-', '+', 'COUNT', 1)
local since = oldest[1] and string.match(oldest[1][1], '^%d+') or ''
return {expired, redis.call('ZCARD', KEYS[4]), redis.call('XLEN', KEYS[5]), since, now, lost}
