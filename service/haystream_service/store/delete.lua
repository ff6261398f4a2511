#!lua
-- Leave nothing of a query but that it was deleted, whatever its revision is.
-- KEYS: meta, and every other key of the query but its outbox: who has seen what is for the topic to keep.
-- ARGV: 1 partition, 2 the least revision, 3 to 5 offsets of queries, verdicts and leases up to which its topics are
-- read, 6 settings that say that it is deleted.
-- Answers {partition that owns it, revision}, then its offsets of queries, verdicts and leases; where that is another
-- partition, the two alone, and nothing was changed.
local meta = KEYS[1]
if redis.call('TYPE', meta).ok ~= 'hash' then  -- somebody has put something else there
  redis.call('DEL', meta)
end

-- What a field says, where that is a number as scripts and workers write one.
local function said(field)
  local text = redis.call('HGET', meta, field) or ''
  return #text <= 16 and string.match(text, '^-?%d+$') and tonumber(text)
end

local owner = (said('partition') or -1) >= 0 and redis.call('HGET', meta, 'partition') or ARGV[1]
local stored = said('revision') or 0
if owner ~= ARGV[1] then
  return {owner, string.format('%.0f', stored)}
end
local revision = string.format('%.0f', math.max(stored + 1, tonumber(ARGV[2])))

local function furthest(field, read)
  return string.format('%.0f', math.max(said(field) or -1, tonumber(read)))
end

local queries, verdicts = furthest('queries_offset', ARGV[3]), furthest('verdicts_offset', ARGV[4])
local leases = furthest('leases_offset', ARGV[5])
redis.call('DEL', unpack(KEYS))
redis.call('HSET', meta, 'revision', revision, 'fingerprint', 'deleted', 'partition', owner,
  'queries_offset', queries, 'verdicts_offset', verdicts, 'leases_offset', leases, 'cursor', '0', 'touched', ARGV[2],
  'settings', ARGV[6])
return {owner, revision, queries, verdicts, leases}
