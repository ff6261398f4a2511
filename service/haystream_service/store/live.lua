-- The leases that are not over. KEYS: as `lease_functions`.  Answers {id, lease, …}, those that end first first.
local answer = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  local lease = redis.call('HGET', KEYS[2], id)
  if lease then
    answer[#answer + 1] = id
    answer[#answer + 1] = lease
  end
end
return answer
