#!lua
-- Write one batch of a query, or nothing: a compare-and-set on its revision.
-- KEYS: meta, verdicts, ranking, participants, edges.
-- ARGV: 1 expected revision, 2 new revision, 3 fingerprint of the change, 4 partition, 5 queries offset,
--       6 verdicts offset, 7 cursor, 8 when an event was last saved (milliseconds), 9 settings ('' = as they were),
--       10 what all rows share (JSON), 11 ranking, 12 participants' patch, 13 edges' patch, then (verdict id, wire JSON)
--       for each new verdict.
-- Answers nil where the change is stored (now, or by an earlier try whose reply was lost), else the stored revision.
local meta = KEYS[1]
local stored = redis.call('HGET', meta, 'revision') or '0'
if stored ~= ARGV[1] then
  if stored == ARGV[2] and redis.call('HGET', meta, 'fingerprint') == ARGV[3] then
    return nil
  end
  return stored
end

local function later(field, value)
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

redis.call('HSET', meta, 'revision', ARGV[2], 'fingerprint', ARGV[3], 'partition', ARGV[4],
  'queries_offset', later('queries_offset', ARGV[5]), 'verdicts_offset', later('verdicts_offset', ARGV[6]),
  'cursor', ARGV[7], 'touched', ARGV[8], 'shared', ARGV[10])
if ARGV[9] ~= '' then
  redis.call('HSET', meta, 'settings', ARGV[9])
end
for i = 14, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('SET', KEYS[3], ARGV[11])
apply(KEYS[4], ARGV[12])
apply(KEYS[5], ARGV[13])
return nil
