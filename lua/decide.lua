-- decide.lua: decides a batch of requests in one atomic step. It stands behind state.lua, batch.lua
-- and a table `makers`: algorithm number → function that returns the algorithm of its .lua file.
--
-- KEYS and what ARGV[1] begins with: see batch.lua. Then for each request:
--     deadline       µs since 1970; a request that is past it is left alone; 0 means none
--     more           0, or 1 and then:
--       hold         a charge of a leaky bucket passes when it drains within so many µs
--       flags        1: give each charge's mark; 2: list who holds slots and what waits; 3: both
--       id           of the decision, a string
--       note         the key that remembers a grant, counted from 1; 0: none
--       note ttl     ms
--       life         µs for which a ticket of the decision may be settled
--     charges        how many, then for each: key, settings (both counted from 1), cost, shadow
--
-- The reply is one msgpack array: now, then for each request a code:
--   0, 1  denied, allowed; then for each charge µs to wait (0 passes, -1 never does), what is left, µs
--         until it is as if unused; the mark, if asked for; how many are listed and for each cost, age
--         and due, if asked for
--   2     past its deadline
--   3     a key holds something else
--   4     granted before, then a string: a msgpack array of now at that time, until when a ticket may
--         be settled, id, charges, each charge's cost, and then what was replied for each charge
--   5     now is outside the calendar periods that came along
--
-- A request passes when every charge that is not a shadow passes; then all that pass are charged.
-- Later requests see what earlier ones took. All keys are read before the first is written, and
-- each is written at most once, so an error leaves nothing half done.

local waits = {}

-- meet asks each charge how long it must wait, in waits, and returns the request's code.
local function meet(first, last, hold)
  local code = 1
  for c = first, last, 4 do
    local s = states[args[c]]
    if s.broken then return 3 end
    local wait = s.algorithm.decide(s, settings[args[c + 1]], now, args[c + 2])
    if s.broken then return 3 end
    if wait == OUTSIDE then return 5 end
    if wait > 0 and wait <= hold and s.waits then
      waits[c] = wait
    elseif wait ~= 0 then
      waits[c] = wait
      if args[c + 3] == 0 then code = 0 end
    else
      waits[c] = 0
    end
  end
  return code
end

-- conclude charges what is to be charged, and reports each charge.
local function conclude(first, last, code, hold, flags, id)
  for c = first, last, 4 do
    local s, set, cost, wait = states[args[c]], settings[args[c + 1]], args[c + 2], waits[c]
    local a = s.algorithm
    if code == 0 or wait < 0 or wait > 0 and not (s.waits and wait <= hold) then cost = 0 end
    if cost > 0 or s.moved then
      a.charge(s, set, now, cost, id)
      s.saved = true
    end
    out[n + 1], out[n + 2], out[n + 3] = wait, a.report(s, set, now)
    n = n + 3
    if flags % 2 == 1 then
      n = n + 1
      out[n] = cost > 0 and a.mark(s, set, now) or 0
    end
    if flags >= 2 then
      local listed = a.list and a.list(s, set, now) or {}
      n = n + 1
      out[n] = #listed / 3
      for i = 1, #listed do out[n + i] = listed[i] end
      n = n + #listed
    end
  end
end

-- remember makes what was replied from out[from] on the text of the note.
local function remember(note, ttl, first, last, from, life, id)
  local grant = {now, now + life, id, (last - first) / 4 + 1}
  for c = first, last, 4 do grant[#grant + 1] = args[c + 2] end
  for i = from, n do grant[#grant + 1] = out[i] end
  note.text, note.ttl, note.saved = cmsgpack.pack(grant), ttl, true
end

local requests = args[pos]
pos = pos + 1
for _ = 1, requests do
  local deadline, hold, flags, id, note, ttl, life = args[pos], 0, 0, '', 0, 0, 0
  if args[pos + 1] == 1 then
    hold, flags, id, note, ttl, life = unpack(args, pos + 2, pos + 7)
    pos = pos + 6
  end
  local first = pos + 3
  local last = first + 4 * args[pos + 2] - 4
  pos = last + 4
  n = n + 1
  local at = n
  if deadline > 0 and now > deadline then
    out[at] = 2
  elseif note > 0 and states[note].broken then
    out[at] = 3
  elseif note > 0 and states[note].text then
    out[at], out[at + 1] = 4, states[note].text
    n = n + 1
  else
    local code = meet(first, last, hold)
    out[at] = code
    if code < 2 then
      conclude(first, last, code, hold, flags, id)
      if code == 1 and note > 0 then remember(states[note], ttl, first, last, at + 1, life, id) end
    end
  end
end

saveAll()
return cmsgpack.pack(out)
