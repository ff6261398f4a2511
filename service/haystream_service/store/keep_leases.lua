-- Take in facts about leases. KEYS: as `lease_functions`.  ARGV: (lease id, '1' where it is over, lease) for each fact.
for i = 1, #ARGV, 3 do
  merge_lease(ARGV[i], ARGV[i + 1] == '1', read_lease(ARGV[i + 2]))
end
return nil
