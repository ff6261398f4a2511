#!lua
-- What is known of items. KEYS: log, ids.  ARGV: the bytes that a digest has, item ids.
-- Answers, for each id, the item's last entry, or nothing. Nil where `ids` alone is gone.
if redis.call('EXISTS', KEYS[2]) == 0 and redis.call('EXISTS', KEYS[1]) == 1 then
  return nil
end
local answers = {}
for i = 2, #ARGV do
  local known = ARGV[i] ~= '' and redis.call('HGET', KEYS[2], ARGV[i])  -- '' is not an item: the collection was deleted
  local number = known and string.sub(known, tonumber(ARGV[1]) + 1) .. '-0'
  local entry = number and redis.call('XRANGE', KEYS[1], number, number)[1]
  answers[#answers + 1] = entry and entry[2][2] or false
end
return answers
