-- A token bucket in one call, as an application would write it for itself.
-- KEYS[1] is the bucket, ARGV its burst, the µs in which a token comes back, and what to take.
-- Returns whether that was there, 1 or 0, and what is left in whole tokens.
local burst, every, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) / every)
if tokens < cost then
  return {0, math.floor(tokens)}
end
tokens = tokens - cost
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) * every / 1000))
return {1, math.floor(tokens)}
