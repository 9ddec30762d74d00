-- settle.lua: settles or renews the charges of tickets. It stands behind state.lua, batch.lua and the
-- algorithms, as decide.lua does, but may run when memory is short.
--
-- KEYS and what ARGV[1] begins with: see batch.lua. Then comes 1, the number of requests, and:
--   deadline       µs since 1970; past it the request is left alone; 0 means none
--   act            1 finish, 2 renew, 3 give back: only the slots, if something was charged after it in its
--                  leaky buckets
--   expires        µs since 1970: when the ticket does
--   life           µs for which a ticket that is renewed now may be settled
--   marker         the key that says that the ticket was finished, counted from 1
--   id             of the decision, a string
--   charges        how many, then for each: key, settings (both counted from 1), charged, actual, mark
--
-- The reply is one msgpack array: now, then a code:
--   0, 1  not done (it was finished before), done; then for each charge what is left
--         and µs until it is as if unused; of a leased limit, how much is out
--   2     past its deadline
--   3     a key holds something else
--   5     now is outside the calendar periods that came along
--   6     the ticket or, to be renewed, a slot has expired, or the ticket was finished
--   7     a debt would be too deep, then which charge's, counted from 1

local deadline, act, expires, life, id = args[pos + 1], args[pos + 2], args[pos + 3], args[pos + 4], args[pos + 6]
local marker = states[args[pos + 5]]
local first = pos + 8
local last = first + 5 * args[pos + 7] - 5

-- pay settles one charge in memory, and returns the code that it ends with. What keeps is charged as before.
local function pay(c, keeps)
  local s, set, charged, actual, mark = states[args[c]], settings[args[c + 1]], args[c + 2], args[c + 3], args[c + 4]
  local a = s.algorithm
  if act ~= 2 then
    if keeps and not a.renew then actual = charged end
    local result = a.settle(s, set, now, charged, actual, mark, id)
    if result == OUTSIDE then return 5 end
    return result and 1 or 7
  end
  if a.renew and charged > 0 then return a.renew(s, set, now, id, mark) and 1 or 6 end
  return a.decide(s, set, now, 0) == OUTSIDE and 5 or 1
end

-- isLast reports whether nothing was charged after the request in its leaky buckets: then they are
-- full at the time that was foreseen.
local function isLast()
  for c = first, last, 5 do
    local s, set = states[args[c]], settings[args[c + 1]]
    if s.algorithm.waits and args[c + 2] > 0 and not s.broken then
      s.algorithm.decide(s, set, now, 0)
      local _, reset = s.algorithm.report(s, set, now)
      if now + reset ~= args[c + 4] then return false end
    end
  end
  return true
end

local function settle()
  if deadline > 0 and now > deadline then return 2 end
  if marker.broken then return 3 end
  if now >= expires or act == 2 and marker.text then return 6 end
  local code = marker.text and 0 or 1
  local keeps = act == 3 and not isLast()
  for c = first, last, 5 do
    local s, set = states[args[c]], settings[args[c + 1]]
    local ended = 1
    if s.broken then return 3 end
    if code == 1 then
      ended = pay(c, keeps)
    elseif s.algorithm.decide(s, set, now, 0) == OUTSIDE then
      ended = 5
    end
    if s.broken then return 3 end
    if ended == 7 then out[3] = (c - first) / 5 + 1 end
    if ended ~= 1 then return ended end
  end
  return code
end

local code = settle()
out[2], n = code, 2
if code < 2 then
  for c = first, last, 5 do
    local s, set = states[args[c]], settings[args[c + 1]]
    out[n + 1], out[n + 2] = s.algorithm.report(s, set, now)
    n = n + 2
    if s.algorithm.out then
      n = n + 1
      out[n] = s.algorithm.out(s)
    end
  end
  if code == 1 then
    if act ~= 2 then
      marker.text, marker.ttl, marker.saved = '1', ceil(max(expires - now, life) / 1000), true
    end
    for i = 1, #states do
      if states[i].saved then states[i].algorithm.save(states[i], now) end
    end
  end
end
return cmsgpack.pack(out)
