#!lua flags=no-writes
-- Read a query's tables in one step. KEYS: meta, participants' rows, edges' rows, and both as formats 1 to 3 have them.
-- Answers nil, or {what all rows are read with as JSON, settings, size (nil in formats 1 to 3), how many bytes of rows
-- were saved at least, the rows of both}.
-- Those are where the first save of this format has deleted none, or a worker of an earlier one has saved after it.
local shared = redis.call('HGET', KEYS[1], 'shared')
if not shared then
  return nil
end
local size = redis.call('EXISTS', KEYS[4]) == 0 and redis.call('HGET', KEYS[1], 'size')
local first = size and 2 or 4
local rows = {redis.call('GET', KEYS[first]), redis.call('GET', KEYS[first + 1])}
local told, revision = unpack(redis.call('HMGET', KEYS[1], 'told', 'revision'))
local of, people, pairs = string.match(told or '', '^(%d+) (%d+) (%d+)$')
local bytes = size and of == revision and {tonumber(people), tonumber(pairs)} or {0, 0}
return {shared, redis.call('HGET', KEYS[1], 'settings'), size, bytes, unpack(rows)}
