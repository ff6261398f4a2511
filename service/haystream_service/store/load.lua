#!lua flags=no-writes
-- Read a query's facts in one step. KEYS: meta, verdicts, leases. Answers nil where it is not saved, or {meta as a flat
-- list, verdicts, leases as a flat list}.
if redis.call('HEXISTS', KEYS[1], 'revision') == 0 then
  return nil
end
return {redis.call('HGETALL', KEYS[1]), redis.call('HVALS', KEYS[2]), redis.call('HGETALL', KEYS[3])}
