-- Whether the server takes writes, and from a script: KEYS[1] is a key for nothing else. It changes it once.
redis.call('SET', KEYS[1], '', 'NX')
return 1
