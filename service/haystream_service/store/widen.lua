#!lua
-- Widen spans of offsets. KEYS: a hash.  ARGV: 1 how many fields it may have at most (0: any number), then (field,
-- first, last) of each span. Where there is no room for a new field, the span of the field '' is widened.
local key, room = KEYS[1], tonumber(ARGV[1])
for i = 2, #ARGV, 3 do
  local field, first, last = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local known = redis.call('HGET', key, field)
  if not known and room > 0 and redis.call('HLEN', key) - redis.call('HEXISTS', key, '') >= room then
    field = ''
    known = redis.call('HGET', key, field)
  end
  if known then
    local before, after = string.match(known, '(%d+) (%d+)')
    if tonumber(before) < tonumber(first) then
      first = before
    end
    if tonumber(after) > tonumber(last) then
      last = after
    end
  end
  redis.call('HSET', key, field, first .. ' ' .. last)
end
return nil
