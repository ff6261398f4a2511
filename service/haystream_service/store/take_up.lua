#!lua
-- Remove spans that are still what the caller read. KEYS: a note, its query.  ARGV: spans of queries, of verdicts and of leases
-- ('' = none), the revision that has what lies there: where the query has it no more, the store has gone back, and nothing is done.
-- Answers 1 where nothing else is left there, also if an earlier try whose reply was lost has removed them.
if tonumber(redis.call('HGET', KEYS[2], 'revision') or 0) < tonumber(ARGV[4]) then
  return 0
end
for i, field in ipairs({'queries', 'verdicts', 'leases'}) do
  local span = redis.call('HGET', KEYS[1], field)
  if span and span ~= ARGV[i] then
    return 0
  end
end
redis.call('HDEL', KEYS[1], 'queries', 'verdicts', 'leases')
return 1
