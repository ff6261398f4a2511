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

-- What a field says, where that is a number from `least` to `most` as scripts and workers write one; else nothing.
-- Whoever is answered another one would take it for damage, and delete the query again and again.
local function said(field, least, most)
  local text = redis.call('HGET', meta, field) or ''
  local number = #text <= 16 and (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
  return number and number >= least and number <= most and number
end

local MOST, PARTITIONS = 9007199254740992, 2147483647
local owner = said('partition', 0, PARTITIONS) and redis.call('HGET', meta, 'partition') or ARGV[1]
local stored = said('revision', 0, MOST) or 0
if owner ~= ARGV[1] then
  return {owner, string.format('%.0f', stored)}
end
local revision = string.format('%.0f', math.max(stored + 1, tonumber(ARGV[2])))

local function furthest(field, read)
  return string.format('%.0f', math.max(said(field, -1, MOST) or -1, tonumber(read)))
end

local queries, verdicts = furthest('queries_offset', ARGV[3]), furthest('verdicts_offset', ARGV[4])
local leases = furthest('leases_offset', ARGV[5])
redis.call('DEL', unpack(KEYS))
redis.call('HSET', meta, 'revision', revision, 'fingerprint', 'deleted', 'partition', owner,
  'queries_offset', queries, 'verdicts_offset', verdicts, 'leases_offset', leases, 'cursor', '0', 'touched', ARGV[2],
  'settings', ARGV[6])
return {owner, revision, queries, verdicts, leases}
