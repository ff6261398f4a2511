#!lua flags=no-writes
-- Read a query's tables in one step. KEYS: meta, participants, edges.
-- Answers nil, or {what all rows are read with as JSON, participants' rows, edges' rows}.
local shared = redis.call('HGET', KEYS[1], 'shared')
if not shared then
  return nil
end
return {shared, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}
