#!lua flags=allow-oom
-- Take out of the outbox what is published. KEYS: meta, outbox.  ARGV: the entries.
-- Of a query that was deleted nothing comes any more: the last one takes the outbox with it.
redis.call('XDEL', KEYS[2], unpack(ARGV))
if redis.call('XLEN', KEYS[2]) == 0 and redis.call('HGET', KEYS[1], 'fingerprint') == 'deleted' then
  redis.call('DEL', KEYS[2])
end
return nil
