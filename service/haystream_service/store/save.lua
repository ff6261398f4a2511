-- Write one batch of a query, or nothing: a compare-and-set on its revision.
-- KEYS: as `lease_functions`, then 6 verdicts, 7 ranking, 8 participants, 9 edges, 10 offers, 11 and 12 the
--       participants and edges as formats 1 to 3 have them.
-- ARGV: 1 expected revision, 2 new revision, 3 fingerprint of the change, 4 partition, 5 queries offset,
--       6 verdicts offset, 7 cursor, 8 when an event was last saved (milliseconds), 9 settings ('' = as they were),
--       10 what all rows share (JSON), 11 ranking, 12 participants' patch, 13 edges' patch, 14 leases
--       offset, 15 '1' where nothing may be claimed, 16 how many verdicts, 17 how many facts about leases, 18 how many
--       leases ended with a verdict, 19 the offers' head ('' = none are kept), 20 '1' where no other rows are to stay
--       than those given, 21 how many participants and edges the tables are of, 22 the store's history, 23 '1' where the
--       query is in its partition's set of those that have leases, 24 '1' where ranking and tables are to be saved anew,
--       then (verdict id, wire JSON) for each new verdict, (lease id, '1' where it is over, lease) for each fact, the
--       ids of those that ended, the offers.
-- Answers nil where the change is stored (now, or by an earlier try whose reply was lost), 'less' where it is and somebody
-- else has taken away some of what was stored before, 'index' where 23 has to be done first, else the stored revision.
local meta = KEYS[1]
local stored = redis.call('HGET', meta, 'revision') or '0'
if stored ~= ARGV[1] then
  if stored == ARGV[2] and redis.call('HGET', meta, 'fingerprint') == ARGV[3] then
    return nil
  end
  return stored
end
if not is_listed(ARGV[17] ~= '0', ARGV[23]) then
  return 'index'
end

local function furthest(field, value)
  local old = redis.call('HGET', meta, field)
  if old and tonumber(old) > tonumber(value) then
    return old
  end
  return value
end

-- A patch is a row of runs: byte offset and length (uint32, little-endian), then the bytes.
local function apply(key, patch)
  local at = 1
  while at <= #patch do
    local offset, length = struct.unpack('<I4I4', patch, at)
    redis.call('SETRANGE', key, offset, string.sub(patch, at + 8, at + 7 + length))
    at = at + 8 + length
  end
end

-- A script that is refused in the middle stays as far as it came, and is sent again. So the revision, which says that
-- the change is stored, comes last, and all before it may be done twice: first what is computed, so that who claims
-- meanwhile is offered nothing that was judged, then facts.
local first_lease = 25 + 2 * ARGV[16]
local first_ended = first_lease + 3 * ARGV[17]
local first_offer = first_ended + ARGV[18]
redis.call('SET', KEYS[7], ARGV[11])
if ARGV[20] == '1' then
  redis.call('DEL', KEYS[8], KEYS[9], KEYS[11], KEYS[12])
end
local of, people, pairs = string.match(redis.call('HGET', meta, 'told') or '', '^(%d+) (%d+) (%d+)$')
local bytes = of == stored and {tonumber(people), tonumber(pairs)} or {0, 0}
local cut_short = false
for at = 1, 2 do
  local key = KEYS[7 + at]
  if ARGV[20] ~= '1' and redis.call('STRLEN', key) < bytes[at] then
    cut_short = true  -- what is added to it would stand behind rows of zeros
  else
    apply(key, ARGV[11 + at])
    bytes[at] = redis.call('STRLEN', key)
  end
end
if ARGV[19] ~= '' then
  redis.call('DEL', KEYS[10])
  redis.call('RPUSH', KEYS[10], ARGV[19])
  for at = first_offer, #ARGV, 1000 do
    redis.call('RPUSH', KEYS[10], unpack(ARGV, at, math.min(at + 999, #ARGV)))
  end
end
for at = first_lease, first_ended - 1, 3 do
  merge_lease(ARGV[at], ARGV[at + 1] == '1', read_lease(ARGV[at + 2]))
end
for at = first_ended, first_offer - 1 do
  local lease = get_lease(ARGV[at])
  if lease and lease[1] ~= 'over' then
    end_lease(ARGV[at], lease)
  end
end
-- Those that somebody deletes are counted on, by which they are missed; those that an earlier version, or a try that was
-- refused, has put there are not counted yet.
local verdicts = tonumber(redis.call('HGET', meta, 'verdicts') or '0')
for at = 25, first_lease - 1, 2 do
  verdicts = verdicts + redis.call('HSET', KEYS[6], ARGV[at], ARGV[at + 1])
end
local there = redis.call('HLEN', KEYS[6])
verdicts = math.max(verdicts, there)
local said = {'revision', ARGV[2], 'fingerprint', ARGV[3], 'partition', ARGV[4],
  'queries_offset', furthest('queries_offset', ARGV[5]), 'verdicts_offset', furthest('verdicts_offset', ARGV[6]),
  'leases_offset', furthest('leases_offset', ARGV[14]), 'cursor', ARGV[7], 'touched', ARGV[8], 'shared', ARGV[10],
  'size', ARGV[21], 'history', ARGV[22], 'unfinished', ARGV[24], 'verdicts', string.format('%.0f', verdicts),
  'told', string.format('%s %.0f %.0f', ARGV[2], bytes[1], bytes[2])}
if ARGV[9] ~= '' then
  said[#said + 1] = 'settings'
  said[#said + 1] = ARGV[9]
end
if ARGV[15] == '1' then
  said[#said + 1] = 'rebuilding'
  said[#said + 1] = '1'
end
redis.call('HSET', meta, unpack(said))
if there < verdicts or cut_short then
  return 'less'
end
return nil
