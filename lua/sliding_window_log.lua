-- sliding_window_log.lua: what was charged within a window of time, each charge an entry of the log that
-- log.lua describes. Mirrors limit.slidingWindowLog: change both, and
-- internal/limit/testdata/sliding_window_log.json, together.
-- State: score → when it was charged; the member ends with the id of the decision, if it has one.
-- Settings: {limit, window in µs}.

local log = logs()

local function decide(s, set, now, cost)
  local most, span = set[1], set[2]
  if s.newest and s.newest.at > now then
    log.move(s, s.newest.at - span, now)
    for i = 1, #s.tail do s.tail[i].at = now end
  end
  log.look(s, now - span)
  if cost > most then return -1 end
  local last = log.last(s, most, cost)
  return last and last.at + span - now or 0
end

local function charge(s, set, now, cost, id)
  if cost > 0 then log.add(s, {at = now, cost = cost, id = id}) end
  s.til = s.newest and s.newest.at + set[2] or now
end

return {
  load = log.load,

  parse = function(e, rest)
    e.id = rest
    return true
  end,

  text = function(e) return e.id end,

  -- decide moves entries that are ahead of now to now, since the clock was set back; what no longer
  -- counted when the newest was charged does not count again.
  decide = decide,

  charge = charge,

  report = function(s, set, now)
    return set[1] - (s.sum - s.before), s.newest and max(0, s.newest.at + set[2] - now) or 0
  end,

  mark = function(s) return s.newest.at end,

  -- settle reprices the entry of the decision, and takes it out when it costs nothing in the end.
  settle = function(s, set, now, charged, actual, mark, id)
    local ok, i = log.settle(s, set, now, charged, actual, mark, id, now - set[2])
    if i and actual == 0 then
      log.remove(s, i)
      charge(s, set, now, 0)
    end
    return ok
  end,

  save = log.save,
}
