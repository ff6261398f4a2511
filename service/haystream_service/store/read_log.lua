#!lua flags=no-writes
-- Read on in a collection's log. KEYS: log.  ARGV: the entry after which, how many at most, and after how many bytes
-- there are to be no more. Answers the entries: one at least where there is one.
local AT_ONCE = 20
local after, most, enough = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local found, bytes = {}, 0
while #found < most and bytes < enough do
  local first = string.format('%.0f-0', after + #found + 1)
  local some = redis.call('XRANGE', KEYS[1], first, '+', 'COUNT', math.min(most - #found, AT_ONCE))
  for _, entry in ipairs(some) do
    found[#found + 1] = entry[2][2]
    bytes = bytes + #entry[2][2]
  end
  if #some < AT_ONCE then
    break
  end
end
return found
