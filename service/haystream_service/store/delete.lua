#!lua
-- Leave nothing of a query but that it was deleted, whatever its revision is.
-- KEYS: its outbox, which stays while it has something (who has seen what is for the topic to keep), meta, and every
-- other key of the query.
-- ARGV: 1 partition, 2 the least revision, 3 queries offset, 4 settings that say that it is deleted.
-- Answers {partition that owns it, revision}, then its offsets of queries, verdicts and leases; where that is another
-- partition, the two alone, and nothing was changed.
local outbox, meta = KEYS[1], KEYS[2]
if redis.call('TYPE', meta).ok ~= 'hash' then  -- somebody has put something else there
  redis.call('DEL', meta)
end
local owner = redis.call('HGET', meta, 'partition') or ARGV[1]
local stored = tonumber(redis.call('HGET', meta, 'revision') or '0')
if owner ~= ARGV[1] then
  return {owner, string.format('%.0f', stored)}
end
local revision = string.format('%.0f', math.max(stored + 1, tonumber(ARGV[2])))
local queries = math.max(tonumber(redis.call('HGET', meta, 'queries_offset') or '-1'), tonumber(ARGV[3]))
local verdicts = redis.call('HGET', meta, 'verdicts_offset') or '-1'
local leases = redis.call('HGET', meta, 'leases_offset') or '-1'
redis.call('DEL', unpack(KEYS, 2))
if redis.call('TYPE', outbox).ok == 'stream' and redis.call('XLEN', outbox) == 0 then
  redis.call('DEL', outbox)
end
redis.call('HSET', meta, 'revision', revision, 'fingerprint', 'deleted', 'partition', owner,
  'queries_offset', string.format('%.0f', queries), 'verdicts_offset', verdicts,
  'leases_offset', leases, 'cursor', '0', 'touched', ARGV[2],
  'settings', ARGV[4])
return {owner, revision, string.format('%.0f', queries), verdicts, leases}
