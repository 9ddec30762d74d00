-- concurrency.lua: who holds a slot, as a sorted set. Mirrors limit.concurrency: change both, and
-- internal/limit/testdata/concurrency.json, together.
-- State: member "id:start", start being µs since 1970 when the slot was granted → µs since 1970 at which
-- it expires; a holder is live while that is later than now. Without an id it is "~n:start".
-- Settings: {limit, ttl}, ttl in µs.
--
-- s.live: live holders, this call's included. s.stored: those of them that are stored; nil when the key is
-- absent. s.newest, s.member: the one of these that expires last. s.top: when the last of all does, 0 when none
-- is live. s.cap: stored expiries are cut to it when the state is saved. s.added: what ZADD is to write, score
-- and member in turn.

local PRUNED, LISTED, SHOWN = 1000, 1000, 100

local function time(s, text)
  local at = tonumber(text)
  if at and at % 1 == 0 and at >= 0 and at <= MAX then return at end
  s.broken = true
  return 0
end

-- nth returns the expiry at which n slots have become free. What this call has granted expires last: what
-- would have expired later was cut.
local function nth(s, n)
  local stored = s.live - #s.added / 2
  if n > stored then return s.added[2 * (n - stored) - 1] end
  if s.n ~= n then
    local at = n - stored - 1
    s.n, s.nth = n, time(s, call('ZRANGE', s.key, at, at, 'WITHSCORES')[2])
  end
  return min(s.nth, s.cap)
end

-- rare makes what most calls do not need.
local function rare(a)
  -- cut lets no slot expire after latest.
  function a.cut(s, latest)
    if s.newest > latest and latest < s.cap then
      s.cap, s.late = latest, call('ZRANGEBYSCORE', s.key, string.format('(%.0f', latest), '+inf')
    end
    for i = 1, #s.added, 2 do s.added[i] = min(s.added[i], latest) end
    s.top = min(s.top, latest)
  end

  -- name returns a member for a slot without an id.
  function a.name(s, start)
    local n, taken, member = s.live, true, nil
    while taken do
      member, n = '~' .. n .. start, n + 1
      taken = call('ZSCORE', s.key, member)
      for i = 2, #s.added, 2 do taken = taken or s.added[i] == member end
    end
    return member
  end

  -- held returns the member of a slot that is still held.
  local function held(s, now, start, id)
    if s.live == 0 then return end
    local member = string.format('%s:%.0f', id, start)
    local at = call('ZSCORE', s.key, member)
    if at and time(s, at) > now then return member end
  end

  -- without returns when the last slot but this one expires; 0 when there is no other.
  local function without(s, member)
    if s.live < 2 then return 0 end
    if s.member ~= member then return s.top end
    return time(s, call('ZRANGE', s.key, -2, -2, 'WITHSCORES')[2])
  end

  -- settle frees the slot if it is still held. It cuts none: the settings of a ticket may be older than
  -- those of the limit.
  function a.settle(s, set, now, charged, actual, mark, id)
    local member = charged > 0 and actual == 0 and held(s, now, mark, id)
    if member then
      s.freed, s.top, s.live, s.saved = member, without(s, member), s.live - 1, true
    end
    return true
  end

  -- renew lets the slot last for a ttl from now, and returns whether it was still held.
  function a.renew(s, set, now, id, mark)
    local member = held(s, now, mark, id)
    if not member then return false end
    s.added[1], s.added[2] = now + set[2], member
    s.top, s.saved = max(without(s, member), now + set[2]), true
    return true
  end

  -- list returns the holders, the oldest first, of those that expire first.
  function a.list(s, set, now)
    local all = {}
    local function add(at, member)
      all[#all + 1] = {min(at, s.latest), tonumber(string.match(member, '%d+$')) or now}
    end
    local kept = s.stored or 0
    local stored = kept > 0 and call('ZRANGE', s.key, -kept, min(LISTED - kept, 0) - 1, 'WITHSCORES') or {}
    for i = 1, #stored, 2 do add(min(time(s, stored[i + 1]), s.cap), stored[i]) end
    for i = 1, #s.added, 2 do add(s.added[i], s.added[i + 1]) end
    for i = #all, LISTED + 1, -1 do all[i] = nil end
    table.sort(all, function(x, y) return x[2] < y[2] or x[2] == y[2] and x[1] < y[1] end)
    local flat = {}
    for i = 1, min(#all, SHOWN) do
      flat[3 * i - 2], flat[3 * i - 1], flat[3 * i] = 1, max(0, now - all[i][2]), all[i][1] - now
    end
    return flat
  end
end

return setmetatable({
  load = function(s, now)
    s.live, s.newest, s.top, s.cap, s.added = 0, 0, 0, MAX, {}
    local last = try(s, 'ZRANGE', s.key, -1, -1, 'WITHSCORES')
    if not last or not last[1] then return end
    s.stored = 0
    if not string.find(last[1], ':%d+$') then s.broken = true end
    local newest = time(s, last[2])
    if newest <= now then return end -- it counts as absent
    s.member, s.newest, s.top = last[1], newest, newest
    s.live = call('ZCOUNT', s.key, string.format('(%.0f', now), '+inf')
    s.stored = s.live
  end,

  decide = function(s, set, now, cost)
    local limit = set[1]
    s.latest = now + set[2]
    s.moved = s.top > s.latest
    if cost > 1 then cost = 1 end
    if cost > limit then return -1 end
    local over = s.live + cost - limit
    if over <= 0 then return 0 end
    return min(nth(s, over), s.latest) - now
  end,

  charge = function(s, set, now, cost, id)
    local latest = now + set[2]
    if s.moved then s.algorithm.cut(s, latest) end
    if cost > 0 then
      local start, added = string.format(':%.0f', now), s.added
      added[#added + 1], added[#added + 2] = latest, id ~= '' and id .. start or s.algorithm.name(s, start)
      s.live, s.top = s.live + 1, max(s.top, latest)
    end
  end,

  report = function(s, set, now)
    if s.live == 0 then return set[1], 0 end
    return set[1] - s.live, min(s.top, s.latest or MAX) - now
  end,

  -- mark returns when the slot was granted.
  mark = function(s, set, now) return now end,

  -- save writes what has changed, to live until the last slot has expired. A new slot comes first: a Redis
  -- that is out of memory refuses only a script's first write.
  save = function(s, now)
    if s.stored and (s.stored == 0 or s.live == 0) then call('UNLINK', s.key) end -- which frees memory
    if s.live == 0 then return end
    if #s.added > 0 then call('ZADD', s.key, unpack(s.added)) end
    for i = 1, s.late and #s.late or 0 do call('ZADD', s.key, s.cap, s.late[i]) end
    if s.freed then call('ZREM', s.key, s.freed) end
    local expired = s.stored and call('ZCARD', s.key) - s.live or 0
    if expired > 0 then call('ZREMRANGEBYRANK', s.key, 0, min(expired, PRUNED) - 1) end
    call('PEXPIRE', s.key, max(1, ceil((s.top - now) / 1000)))
  end,
}, {__index = function(a, name)
  rare(a)
  return rawget(a, name)
end})
