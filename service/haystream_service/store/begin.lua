#!lua
-- Put a mark in place of another ('': of none). KEYS: generation. ARGV: 1 the mark, 2 the other.
-- Answers the mark that stands.
local found = redis.call('GET', KEYS[1]) or ''
if found == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
return found
