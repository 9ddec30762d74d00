-- heartbeat.lua: says that a node is alive, and counts the nodes that share each limit.
-- KEYS: one sorted set per limit, node → µs of its last heartbeat. ARGV: the node; how many µs a
-- heartbeat counts, or 0 when the node leaves. The reply is how many nodes are alive, per key.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local node, life = ARGV[1], tonumber(ARGV[2])
local counts = {}
for i, key in ipairs(KEYS) do
  if life == 0 then
    redis.call('ZREM', key, node)
  else
    -- Heartbeats from before the clock stepped back must not outlive the others.
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', key, string.format('(%d', now), '+inf')) do
      redis.call('ZADD', key, now, other)
    end
    redis.call('ZADD', key, now, node)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - life)
    redis.call('PEXPIRE', key, math.ceil(life / 1000))
  end
  counts[i] = redis.call('ZCARD', key)
end
return counts
