-- What is not published yet. KEYS: as `lease_functions`.  ARGV: 1 how many at most.  Answers {partition, {entries}}.
return {redis.call('HGET', KEYS[1], 'partition'), redis.call('XRANGE', KEYS[5], '-', '+', 'COUNT', ARGV[1])}
