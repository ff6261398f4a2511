#!lua
-- Remove a collection's items and leave the mark that it was deleted. KEYS: log, ids.
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[2], '', 'deleted')
return 1
