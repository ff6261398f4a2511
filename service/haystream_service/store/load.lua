#!lua flags=no-writes
-- Read a query's facts in one step. KEYS: meta, verdicts, leases. Answers nil, or {meta as a flat list, verdicts,
-- leases as a flat list}.
local meta = redis.call('HGETALL', KEYS[1])
if #meta == 0 then
  return nil
end
return {meta, redis.call('HVALS', KEYS[2]), redis.call('HGETALL', KEYS[3])}
