-- decide.lua: decides a batch of requests in one atomic step. It stands behind state.lua, batch.lua
-- and `make`, which returns the algorithm of a number from its .lua file. Most calls are of one request:
-- what they do not need is not made, functions included.
--
-- KEYS and what ARGV[1] begins with: see batch.lua. Then:
--   orders   how many, then for each what a node says of its leases on a key: key, settings (both counted
--            from 1), how many tokens it wants, and until when (µs since 1970; 0: at any time); reports: how many,
--            then for each epoch, slot, used, unused
--   requests how many, then for each:
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
--         until it is as if unused; of a leased limit, how much is out; the mark, if asked for; how many
--         are listed and for each cost, age and due, if asked for
--   2     past its deadline
--   3     a key holds something else
--   4     granted before, then a string: a msgpack array of now at that time, until when a ticket may
--         be settled, id, hold, flags, charges, each charge's cost, and then what was replied for each charge
--   5     now is outside the calendar periods that came along
-- and then for each order epoch, slot, tokens and µs: what was lent, and for how long it may be handed out;
-- four zeros when nothing was. A call of several requests by Redis's own time adds how many µs it took.
--
-- All reports are taken before the first request is decided, and all tokens are lent after the last.
-- A request passes when every charge that is not a shadow passes; then all that pass are charged.
-- Later requests see what earlier ones took. All keys are read before the first is written, and
-- each is written at most once, so an error leaves nothing half done.

local orders, firsts = args[pos], nil
pos = pos + 1
if orders > 0 then
  firsts = {}
  for i = 1, orders do
    firsts[i] = pos
    local s, set, last = states[args[pos]], settings[args[pos + 1]], pos + 1 + 4 * args[pos + 4]
    if not s.broken then s.algorithm.take_back(s, set, now, args, pos + 5, last) end
    pos = last + 4
  end
end

local waits = {}
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
  local code = 1
  if deadline > 0 and now > deadline then
    code = 2
  elseif note > 0 and states[note].broken then
    code = 3
  elseif note > 0 and states[note].text then
    code = 4
  else
    for c = first, last, 4 do
      local s = states[args[c]]
      local wait = s.broken or s.algorithm.decide(s, settings[args[c + 1]], now, args[c + 2])
      if s.broken then
        code = 3
        break
      elseif wait == OUTSIDE then
        code = 5
        break
      end
      waits[c - first + 1] = wait
      if wait ~= 0 and args[c + 3] == 0 and not (s.algorithm.waits and wait > 0 and wait <= hold) then code = 0 end
    end
  end
  n = n + 1
  local at = n
  out[at] = code
  if code == 4 then
    n = n + 1
    out[n] = states[note].text
  elseif code < 2 then
    for c = first, last, 4 do
      local s, set, cost, wait = states[args[c]], settings[args[c + 1]], args[c + 2], waits[c - first + 1]
      local a = s.algorithm
      if code == 0 or wait ~= 0 and not (s.algorithm.waits and wait > 0 and wait <= hold) then cost = 0 end
      if cost > 0 or s.moved then
        a.charge(s, set, now, cost, id)
        s.saved = true
      end
      out[n + 1], out[n + 2], out[n + 3] = wait, a.report(s, set, now)
      n = n + 3
      if a.out then
        n = n + 1
        out[n] = a.out(s)
      end
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
  if code == 1 and note > 0 then
    local grant = {now, now + life, id, hold, flags, (last - first) / 4 + 1}
    for c = first, last, 4 do grant[#grant + 1] = args[c + 2] end
    for i = at + 1, n do grant[#grant + 1] = out[i] end
    local s = states[note]
    s.text, s.ttl, s.saved = cmsgpack.pack(grant), ttl, true
  end
end

for i = 1, orders do
  local first = firsts[i]
  local s, set, want, deadline = states[args[first]], settings[args[first + 1]], args[first + 2], args[first + 3]
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = 0, 0, 0, 0
  if want > 0 and (deadline == 0 or now <= deadline) and not s.broken then
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = s.algorithm.lend(s, set, now, want)
  end
  n = n + 4
end

for i = 1, #states do
  if states[i].saved then states[i].algorithm.save(states[i], now) end
end
if requests > 1 and args[1] == 0 then
  local t = call('TIME')
  out[n + 1] = t[1] * 1000000 + t[2] - now
end
return cmsgpack.pack(out)
