-- batch.lua: what the scripts that work on a batch share: they read their arguments and every state,
-- do their work, and write what has changed.
--
-- KEYS: the distinct state keys. ARGV[1]: one msgpack array:
--   now              µs since 1970; 0 means Redis TIME (only tests give another)
--   settings         an array of arrays of numbers
--   for each key     algorithm number × 2, plus 1 for the String form
--   the script's own: see there

local args = cmsgpack.unpack(ARGV[1])
local now = args[1]
local pos = 3 -- of the next argument to read
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local settings = args[2]

-- A state is {key, algorithm, text, …}: the rest is the algorithm's. broken: the key holds something that is no
-- state. saved: it must be written. Where an algorithm has new, that returns a state with a place for all that
-- it will hold: a table that grows is slow.
local states, made, anyPacked = {}, {}, false
for i = 1, #KEYS do
  local kind = args[pos]
  pos = pos + 1
  local a = made[kind]
  if not a then
    a = make(floor(kind / 2), kind % 2 == 1)
    made[kind] = a
  end
  local s = a.new and a.new() or {}
  s.key, s.algorithm = KEYS[i], a
  states[i] = s
  anyPacked = anyPacked or kind % 2 == 1
end
if anyPacked then
  local texts = call('MGET', unpack(KEYS)) -- false for those that are none
  for i = 1, #states do states[i].text = texts[i] end
end
for i = 1, #states do states[i].algorithm.load(states[i], now) end

-- The reply. Its five places are those of a call of one charge, as most are, since a table is slow to grow. What
-- stands behind the last number that is replied is not read.
local out, n = {now, 0, 0, 0, 0}, 1
