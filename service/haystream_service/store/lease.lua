-- Extend or release a lease. KEYS: as `lease_functions`.
-- ARGV: 1 extended or released, 2 lease, 3 analyst, 4 for how long from now (microseconds),
--       5 the request's correlation id.
-- Answers {a code of `ClaimCode`} or {'ok', lease}.
local refused = refusal()
if refused then
  return {refused}
end
local lease = get_lease(ARGV[2])
if not lease then
  return {'unknown_lease'}
elseif lease[6] ~= ARGV[3] then
  return {'not_yours', lease[6]}
elseif lease[1] == 'over' then
  return {'lease_over'}
end
local now = clock()
if ARGV[1] == 'extended' then
  local till = later(now, ARGV[4])
  if tonumber(till) > tonumber(lease[4]) then
    lease[4] = till
  end
  put_lease(ARGV[2], lease)
  redis.call('ZADD', KEYS[4], lease[4], ARGV[2])
end
tell(ARGV[1], now, ARGV[2], lease, ARGV[5])
if ARGV[1] == 'released' then
  end_lease(ARGV[2], lease)
end
return {'ok', table.concat(lease, '\n') .. '\n'}
