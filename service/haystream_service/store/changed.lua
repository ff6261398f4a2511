#!lua
-- Say what became of the change that took hold of a query's settings.
-- KEYS: change.  ARGV: 1 its name, 2 its offset, or '' where nothing was written: then others may.
if redis.call('HGET', KEYS[1], 'name') == ARGV[1] then
  if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'offset', ARGV[2])
  end
end
return 1
