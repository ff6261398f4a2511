-- Lease the best items that nobody has. KEYS: as `lease_functions`, then 6 offers, 7 ranking.
-- ARGV: 1 analyst, 2 for how long (microseconds), 3 '1' where the query is in its partition's set of those that
--       have leases, 4 the request's correlation id, then an id for each lease that is asked for.
-- Answers {a code of `ClaimCode`} or {'index', partition} where 3 has to be done first, or {'ok', id, lease, …}.
local refused = refusal()
if refused then
  return {refused}
end
if not is_listed(true, ARGV[3]) then
  return {'index', redis.call('HGET', KEYS[1], 'partition')}
end

-- {item, score, mean} by rank, some at once, and whether there are no more.
local CHUNK = 200
local head = redis.call('LINDEX', KEYS[6], 0)
local ranking, complete, chunk
if head and string.match(head, '^%d+') == redis.call('HGET', KEYS[1], 'revision') then
  complete = string.match(head, '%d+$') == '1'
  chunk = function(first)
    local found = redis.call('LRANGE', KEYS[6], first, first + CHUNK - 1)
    for i, text in ipairs(found) do
      local item, score, mean = string.match(text, '([^\n]*)\n([^\n]*)\n([^\n]*)')
      found[i] = {item, score, mean}
    end
    return found
  end
else
  -- Nobody has claimed from the query yet, or its owner is of an earlier version: what is published is offered.
  ranking = cjson.decode(redis.call('GET', KEYS[7]) or '{"items":[]}').items
  complete = #ranking == 0
  chunk = function(first)
    local found = {}
    for i = first, math.min(first + CHUNK - 1, #ranking) do
      local item = ranking[i]
      found[#found + 1] = {item.item_id, string.format('%.17g', item.score), string.format('%.17g', item.mean)}
    end
    return found
  end
end

if not adds_up() then
  heal()
end
local now = clock()
local till = later(now, ARGV[2])
local answer, next_id, first = {'ok'}, 5, 1
while next_id <= #ARGV do
  local found = chunk(first)
  if #found == 0 then
    break
  end
  local names = {}
  for i, offer in ipairs(found) do
    names[i] = offer[1]
  end
  local held = redis.call('HMGET', KEYS[3], unpack(names))
  for i, offer in ipairs(found) do
    if not held[i] and next_id <= #ARGV then
      local rank = string.format('%.0f', first + i - 1)
      local lease = {'live', '', now, till, offer[1], ARGV[1], rank, offer[2], offer[3], '', 'ranking'}
      begin_lease(ARGV[next_id], lease)
      tell('claimed', now, ARGV[next_id], lease, ARGV[4])
      answer[#answer + 1] = ARGV[next_id]
      answer[#answer + 1] = table.concat(lease, '\n') .. '\n'
      next_id = next_id + 1
    end
  end
  first = first + CHUNK
end
if #answer == 1 and #ARGV > 4 and not complete then
  return {'not_ranked_yet'}
end
return answer
