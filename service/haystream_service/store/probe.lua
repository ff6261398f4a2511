-- Whether the server takes writes, and from a script: KEYS[1] is a key for nothing else. It changes it once.
-- Answers the server's time: seconds since the epoch, and microseconds.
redis.call('SET', KEYS[1], '', 'NX')
return redis.call('TIME')
