#!lua
-- Have a query say something of itself, if it is saved. KEYS: its meta.  ARGV: a field, what is to be there.
if redis.call('HEXISTS', KEYS[1], 'revision') == 1 then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return nil
