#!lua
-- Note how far partitions of topics are in the store. KEYS: up-to. ARGV: for each its name, what is noted (-1: nothing),
-- and what is to be. Answers {name, what is noted} of those where that is something else; there nothing is changed.
local others = {}
for at = 1, #ARGV, 3 do
  local found = redis.call('HGET', KEYS[1], ARGV[at]) or '-1'
  if found ~= ARGV[at + 1] then
    table.insert(others, ARGV[at])
    table.insert(others, found)
  elseif found ~= ARGV[at + 2] then
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
  end
end
return others
