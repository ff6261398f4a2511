#!lua
-- Note of a query that was deleted that readers were told so. KEYS: meta, outbox.
-- Nothing comes into its outbox any more, and what is there is taken out by whoever publishes it (`published.lua`), and
-- the outbox with it. One that was empty before goes here, also those that earlier versions left.
if redis.call('HGET', KEYS[1], 'fingerprint') == 'deleted' then
  redis.call('HSET', KEYS[1], 'withdrawn', '1')
  if redis.call('TYPE', KEYS[2]).ok == 'stream' and redis.call('XLEN', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[2])
  end
end
return nil
