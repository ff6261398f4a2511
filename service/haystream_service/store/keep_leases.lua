-- Take in facts about leases. KEYS: as `lease_functions`.  ARGV: 1 '1' where the query is in its partition's set of
-- those that have leases, then (lease id, '1' where it is over, lease) for each fact.
-- Answers nil, or 'index' where 1 has to be done first.
if not is_listed(#ARGV > 1, ARGV[1]) then
  return 'index'
end
for i = 2, #ARGV, 3 do
  merge_lease(ARGV[i], ARGV[i + 1] == '1', read_lease(ARGV[i + 2]))
end
return nil
