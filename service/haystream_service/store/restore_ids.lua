#!lua
-- Put what was made anew of a collection's log in the place of `ids`, which is gone: nothing was appended meanwhile.
-- KEYS: ids, what was made. ARGV: how many items are in that, unless some were dropped: then it is of no use. Where somebody
-- else was faster, that stands.
if redis.call('HLEN', KEYS[2]) == tonumber(ARGV[1]) and redis.call('RENAMENX', KEYS[2], KEYS[1]) == 1 then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('DEL', KEYS[2])
end
return nil
