#!lua
-- Append what is new to a collection's log; idempotent by item id.
-- KEYS: log, ids.  ARGV: (item id, digest, wire JSON) for each item.
-- Answers one number an item: 1 added, 0 known with this content, -1 known with other content, -2 for each where
-- the collection was deleted: then `ids` has nothing but the empty id.
local log, ids = KEYS[1], KEYS[2]
local deleted = redis.call('HEXISTS', ids, '') == 1
local entries = redis.call('XLEN', log)
local answers = {}
for i = 1, #ARGV, 3 do
  local id, digest, item = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local known = redis.call('HGET', ids, id)
  if deleted then
    answers[#answers + 1] = -2
  elseif not known then
    entries = entries + 1
    redis.call('XADD', log, string.format('%.0f-0', entries), 'item', item)
    redis.call('HSET', ids, id, digest .. string.format('%.0f', entries))
    answers[#answers + 1] = 1
  elseif string.sub(known, 1, #digest) == digest then
    answers[#answers + 1] = 0
  else
    answers[#answers + 1] = -1
  end
end
return answers
