-- What is not published yet. KEYS: as `lease_functions`.  ARGV: 1 how many at most.  Answers {partition, {entries}}, or
-- nil where the query is not there: only that says the partition, so what lies in the outbox waits until it is.
local partition = redis.call('HGET', KEYS[1], 'partition')
return partition and {partition, redis.call('XRANGE', KEYS[5], '-', '+', 'COUNT', ARGV[1])}
