-- decide.lua: decides a batch of requests in one atomic step. It stands behind state.lua and a
-- table `makers`: algorithm number → function that returns the algorithm of its .lua file.
--
-- KEYS: the distinct state keys. ARGV[1]: one msgpack array of integers:
--   now              µs since 1970; 0 means Redis TIME (only tests give another)
--   settings         how many, then for each: how many numbers, and those numbers
--   for each key     algorithm number × 2, plus 1 for the String form
--   requests         how many, then for each:
--     deadline       µs since 1970; a request that is past it is left alone; 0 means none
--     charges        how many, then for each: key, settings (both counted from 1), cost, shadow
--
-- The reply is one msgpack array of integers: now, then for each request 2 (past its deadline), 3
-- (a key holds something else), or 1 or 0 (allowed or denied) and for each charge three numbers:
-- µs to wait (0 passes, -1 never does), what is left, µs until it is as if unused.
--
-- A request passes when every charge that is not a shadow passes; then all that pass are charged.
-- Later requests see what earlier ones took. All keys are read before the first is written, and
-- each is written at most once, so an error leaves nothing half done.

local args = cmsgpack.unpack(ARGV[1])
local now, count = args[1], args[2]
local pos = 3 -- of the next number to read
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local settings = {}
for i = 1, count do
  local set, numbers = {}, args[pos]
  for j = 1, numbers do set[j] = args[pos + j] end
  settings[i] = set
  pos = pos + 1 + numbers
end

-- A state is {key, algorithm, packed, text, …}: the rest is the algorithm's. broken: the key holds
-- something that is no state. saved: it must be written.
local states, packed, made = {}, {}, {}
for i = 1, #KEYS do
  local kind = args[pos]
  pos = pos + 1
  local a = made[kind]
  if not a then
    a = makers[floor(kind / 2)]()
    made[kind] = a
  end
  local s = {key = KEYS[i], algorithm = a, packed = kind % 2 == 1}
  states[i] = s
  if s.packed then packed[#packed + 1] = s end
end

if #packed > 0 then
  local keys = {}
  for i = 1, #packed do keys[i] = packed[i].key end
  local texts = call('MGET', unpack(keys))
  for i = 1, #packed do packed[i].text = texts[i] end
end
for i = 1, #states do states[i].algorithm.load(states[i]) end

local out, n = {now}, 1
local waits = {}
count = args[pos]
pos = pos + 1
for _ = 1, count do
  local deadline, first = args[pos], pos + 2
  local last = first + 4 * args[pos + 1] - 4
  pos = last + 4
  local code = 1
  if deadline > 0 and now > deadline then
    code = 2
  else
    for c = first, last, 4 do
      local s = states[args[c]]
      if s.broken then
        code = 3
        break
      end
      local wait = s.algorithm.decide(s, settings[args[c + 1]], now, args[c + 2])
      waits[c] = wait
      if wait ~= 0 and args[c + 3] == 0 then code = 0 end
    end
  end
  n = n + 1
  out[n] = code
  if code < 2 then
    for c = first, last, 4 do
      local s, set, cost, wait = states[args[c]], settings[args[c + 1]], args[c + 2], waits[c]
      if code == 0 or wait ~= 0 then cost = 0 end
      if cost > 0 or s.moved then
        s.algorithm.charge(s, set, now, cost)
        s.saved = true
      end
      out[n + 1], out[n + 2], out[n + 3] = wait, s.algorithm.report(s, set)
      n = n + 3
    end
  end
end

for i = 1, #states do
  if states[i].saved then states[i].algorithm.save(states[i], now) end
end

return cmsgpack.pack(out)
