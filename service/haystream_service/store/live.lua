-- The leases that are not over. KEYS: as `lease_functions`.  Answers {id, lease, …}, those that end first first.
local answer = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  answer[#answer + 1] = id
  answer[#answer + 1] = redis.call('HGET', KEYS[2], id)
end
return answer
