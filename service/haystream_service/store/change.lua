#!lua
-- Take hold of a query's settings for a change, unless somebody else has, or they were written since they were read.
-- KEYS: meta, change.  ARGV: 1 the queries offset as it was read, -1 of one that was not there, 2 a name for the change, 3 milliseconds.
-- Answers 'ours', 'taken' or 'moved'. The same change may take hold of them again.
local taken_in = redis.call('HGET', KEYS[1], 'queries_offset') or '-1'
if taken_in ~= ARGV[1] then
  return 'moved'
end
local held, offset = unpack(redis.call('HMGET', KEYS[2], 'name', 'offset'))
if held and held ~= ARGV[2] and not (offset and tonumber(offset) <= tonumber(taken_in)) then
  return 'taken'
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'name', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 'ours'
