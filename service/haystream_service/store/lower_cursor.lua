#!lua
-- Have a query say how many entries of its collection's log it has seen, if it is there. KEYS: its meta.  ARGV: entries.
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'cursor', ARGV[1])
end
return nil
