-- fixed_window.lua: a counter and the end of its window, as a Hash or as one String. Mirrors
-- limit.fixedWindow: change both, and internal/limit/testdata/fixed_window.json, together.
-- State: count (what was charged in the window), serial (names the window: when it began, had the clock
-- never been set back), end (µs since 1970; from then on the state counts as absent).
-- Settings: {limit, span} in µs, or for a calendar period {limit, 0, b0, b1, b2, b3}: the boundaries of
-- three periods in a row. Go has checked that nothing here leaves the integers below 2^53.

local LAYOUT = '<ddd'

-- latest returns when a window that holds now ends at the latest.
local function latest(set, now)
  if set[2] > 0 then return now + set[2] end
  if now < set[4] then return set[4] end
  if now < set[5] then return set[5] end
  return set[6]
end

-- decide and charge are what the fields of the same names say.
local function decide(s, set, now, cost)
  if set[2] == 0 and (now < set[3] or now >= set[6]) then return OUTSIDE end
  if not s.serial or now >= s.til then
    s.count, s.serial = 0, nil
  else
    local last = latest(set, now)
    if s.til > last then s.til, s.moved = last, true end
  end
  if cost > set[1] then return -1 end
  if s.count <= set[1] - cost then return 0 end
  return s.til - now
end

local function charge(s, set, now, cost)
  if not s.serial then s.serial, s.til = now, latest(set, now) end
  s.count = s.count + cost
end

return {
  new = function()
    return {key = nil, algorithm = nil, text = nil, saved = nil, count = nil, serial = nil, til = nil, moved = nil}
  end,

  -- load reads the state. s.serial stays nil when it is absent.
  load = function(s)
    local count, serial, til = read(s, packed, LAYOUT, 'count', 'serial', 'end')
    if not count then return end
    if count % 1 + serial % 1 + til % 1 == 0
      and count >= 0 and count <= MAX and serial > 0 and serial <= MAX and til >= 0 and til <= MAX then
      s.count, s.serial, s.til = count, serial, til
    else
      s.broken = true
    end
  end,

  -- decide brings s to now and returns how many µs cost must still wait: 0 passes, -1 never does; or
  -- OUTSIDE. s.moved says that the state must be saved in any case.
  decide = decide,

  -- charge takes cost from the s that decide brought to now; the first cost begins a window.
  charge = charge,

  -- report returns what is left, and the µs until the window ends.
  report = function(s, set, now)
    return set[1] - s.count, s.serial and s.til - now or 0
  end,

  mark = function(s) return s.serial end,

  -- settle charges the difference to the window that was charged, or gives it back, while that lasts.
  -- Where nothing was charged, all is charged now.
  settle = function(s, set, now, charged, actual, mark)
    if decide(s, set, now, 0) == OUTSIDE then return OUTSIDE end
    local more = actual - charged
    if more == 0 or charged > 0 and s.serial ~= mark then
      if s.moved then s.saved = true end
      return true
    end
    if more > 0 and s.count > MAX - more then return false end
    charge(s, set, now, max(more, -s.count))
    s.saved = true
    return true
  end,

  -- save writes the state, to live until its window ends.
  save = function(s, now)
    local ttl = max(1, ceil((s.til - now) / 1000))
    if packed then
      call('SET', s.key, struct.pack(LAYOUT, s.count, s.serial, s.til), 'PX', ttl)
    else
      call('HSET', s.key, 'count', format('%d', s.count), 'serial', format('%d', s.serial), 'end', format('%d', s.til))
      call('PEXPIRE', s.key, ttl)
    end
  end,
}
