#!lua
-- Append to a collection's log what is known of items now. KEYS: log, ids.
-- ARGV, for each: item id, digest of its people (zeros where they are not known), the entry, and the number of the
-- entry that it was made from, or nothing: then it is what a record says, and is appended where nothing is known.
-- Answers, for each: 1 appended; 0 that is what is known; -1 the item is known with other people; -2 the collection
-- was deleted (`ids` has nothing but the empty id); {number, entry} that is known and has to be put together with
-- this one; or -3 where that would be too much for one answer: to be asked again. Nil where `ids` alone is gone.
local ENOUGH = 4194304  -- bytes
local log, ids = KEYS[1], KEYS[2]
local deleted = redis.call('HEXISTS', ids, '') == 1
local entries = redis.call('XLEN', log)
if entries == 0 and not deleted then  -- the log alone is gone: what `ids` says is of entries that will be others
  redis.call('DEL', ids)
elseif entries > 0 and redis.call('EXISTS', ids) == 0 then
  return nil
end
local answers, bytes = {}, 0

local function answer(id, people, entry, made_from)
  if deleted then
    return -2
  end
  local known = redis.call('HGET', ids, id)
  local number = known and string.sub(known, #people + 1)
  if not known or number == made_from then
    entries = entries + 1
    redis.call('XADD', log, string.format('%.0f-0', entries), 'item', entry)
    redis.call('HSET', ids, id, people .. string.format('%.0f', entries))
    return 1
  end
  local last = redis.call('XRANGE', log, number .. '-0', number .. '-0')[1][2][2]
  if last == entry then
    return 0
  end
  local before, nobody = string.sub(known, 1, #people), string.rep('\0', #people)
  if made_from == '' and before ~= people and before ~= nobody and people ~= nobody then
    return -1
  end
  if bytes >= ENOUGH then
    return -3
  end
  bytes = bytes + #last
  return {number, last}
end

for i = 1, #ARGV, 4 do
  answers[#answers + 1] = answer(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return answers
