-- leaky_bucket_log.lua: a leaky bucket of which every waiting request is known, each an entry of the log
-- that log.lua describes. Mirrors limit.leakyBucketLog: change both, and
-- internal/limit/testdata/leaky_bucket_log.json, together.
-- State: score → when it has drained, rounded up; the member ends with how long before that it was charged,
-- by how much the score is rounded up, in 1/per µs, per (the settings' tokens at the time of writing), and
-- the id of the decision, if it has one.
-- Settings: {tokens, micros, capacity}: so many tokens drain per micros µs. (tokens + 1) × micros is at most
-- 2^53.

local log = logs()
local LISTED, LONGEST = 100, 3155760000000000 -- 100 years

local function decide(s, set, now, cost)
  local newest = s.newest
  local back = newest and newest.at - newest.wait - now or 0
  if back > 0 then
    log.move(s, now + back, now + back)
    for i = 1, #s.tail do s.tail[i].at = s.tail[i].at - back end
  end
  log.look(s, now)
  if cost > set[3] then return -1 end
  local last = log.last(s, set[3], cost)
  return last and last.at - now or 0
end

-- short returns by how much the entry's score is rounded up, in 1/per µs.
local function short(e, per)
  if e.per == per then return e.short end
  return min(floor(e.short * per / e.per), per - 1)
end

-- drained returns when what comes after newest has drained, and by how much that is rounded up. It never
-- forms cost × micros.
local function drained(newest, now, per, micros, cost)
  local at, less = now, 0
  if newest and newest.at > now then at, less = newest.at, short(newest, per) end
  local rounds = floor(cost / per)
  if rounds > floor(LONGEST / micros) then return now + LONGEST, 0 end
  local part = (cost - rounds * per) * micros - less
  local whole = ceil(part / per)
  at = at + (rounds * micros + whole)
  if at > now + LONGEST then return now + LONGEST, 0 end
  return at, whole * per - part
end

return {
  load = log.load,

  parse = function(e, rest)
    local wait, part, per, id = string.match(rest, '^(%d+) (%d+) (%d+) ?(.*)$')
    if not wait then return false end
    e.wait, e.short, e.per, e.id = tonumber(wait), tonumber(part), tonumber(per), id
    return e.wait > 0 and e.wait <= e.at and e.per <= MAX and e.short < e.per
  end,

  text = function(e)
    return string.format('%.0f %.0f %.0f', e.wait, e.short, e.per) .. (e.id ~= '' and ' ' .. e.id or '')
  end,

  -- decide moves everything back by as much as the newest was charged ahead of now, since the clock was set
  -- back: nothing has drained meanwhile.
  decide = decide,

  -- charge puts a request behind the others.
  charge = function(s, set, now, cost, id)
    if cost > 0 then
      local at, part = drained(s.newest, now, set[1], set[2], cost)
      log.add(s, {at = at, cost = cost, wait = at - now, short = part, per = set[1], id = id})
    end
    s.til = s.newest and s.newest.at or now
  end,

  report = function(s, set, now)
    return set[3] - (s.sum - s.before), s.newest and max(0, s.newest.at - now) or 0
  end,

  mark = function(s) return s.newest.at end,

  list = function(s, set, now)
    local flat = {}
    for i, e in ipairs(log.oldest(s, LISTED)) do
      flat[3 * i - 2], flat[3 * i - 1], flat[3 * i] = e.cost, now - (e.at - e.wait), e.at - now
    end
    return flat
  end,

  -- settle changes what the request costs, but not when it or another has drained. What nothing was charged
  -- for is too deep when it takes 100 years to drain.
  settle = function(s, set, now, charged, actual, mark, id)
    local ok = log.settle(s, set, now, charged, actual, mark, id, now)
    return ok and not (charged == 0 and actual > 0 and s.newest.at >= now + LONGEST)
  end,

  save = log.save,
}
