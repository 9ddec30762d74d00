-- sliding_window.lua: two counters on a grid, as a Hash or as one String. Mirrors limit.slidingWindow,
-- whose comments say more: change both, and internal/limit/testdata/sliding_window.json, together.
-- State: count and previous (what was charged in the current window and in the one before), serial
-- (names the current window: when it began, had the clock never been set back), start (when it began,
-- in µs since 1970).
-- Settings: {limit, span, unit, units}: the span in µs, the µs in a unit, and the span in units,
-- rounded up. Go has checked that limit × units is below 2^52, below which floor(a / b) is exact in
-- float64.

local LAYOUT = '<dddd'

-- setTil makes s.til the time at which the state says no more than an absent one.
local function setTil(s, set)
  s.til = s.start + (s.count > 0 and 2 or 1) * set[2]
end

-- opens returns how many units of a window must be over before no more of what was charged in the one
-- before counts than is free; nil when that much counts up to the window's end.
local function opens(set, old, free)
  if old <= free then return 0 end
  if free <= 0 then return nil end
  local still = floor(free * set[4] / old)
  if still > 0 then return set[4] - still end
end

-- advance brings s to now.
local function advance(s, set, now)
  if s.serial then setTil(s, set) end
  if not s.serial or now >= s.til then
    s.count, s.previous, s.serial, s.start = 0, 0, nil, now
  elseif now < s.start then
    s.start, s.moved = now, true
  elseif now >= s.start + set[2] then
    s.previous, s.count = s.count, 0
    s.start, s.serial = s.start + set[2], s.serial + set[2]
  end
end

-- decide and charge are what the fields of the same names say.
local function decide(s, set, now, cost)
  advance(s, set, now)
  local limit = set[1]
  if cost > limit then return -1 end
  local e = opens(set, min(s.previous, limit), limit - cost - s.count)
  if e then return max(0, s.start + e * set[3] - now) end
  e = opens(set, min(s.count, limit), limit - cost)
  if e then return s.start + set[2] + e * set[3] - now end
  return s.start + 2 * set[2] - now
end

local function charge(s, set, now, cost)
  if not s.serial then s.serial = now end
  s.count = s.count + cost
  setTil(s, set)
end

return {
  new = function()
    return {key = nil, algorithm = nil, text = nil, saved = nil, count = nil, previous = nil, serial = nil,
      start = nil, til = nil, moved = nil}
  end,

  -- load reads the state. s.serial stays nil when it is absent.
  load = function(s)
    local count, previous, serial, start = read(s, packed, LAYOUT, 'count', 'previous', 'serial', 'start')
    if not count then return end
    if count % 1 + previous % 1 + serial % 1 + start % 1 == 0
      and count >= 0 and count <= MAX and previous >= 0 and previous <= MAX
      and serial > 0 and serial <= MAX and start >= 0 and start <= MAX then
      s.count, s.previous, s.serial, s.start = count, previous, serial, start
    else
      s.broken = true
    end
  end,

  -- decide brings s to now and returns how many µs cost must still wait: 0 passes, -1 never does.
  -- s.moved says that the state must be saved in any case.
  decide = decide,

  -- charge takes cost from the s that decide brought to now; the first cost begins a grid.
  charge = charge,

  -- report returns what is left, and the µs until nothing that was charged counts any more.
  report = function(s, set, now)
    local left, reset = set[1], 0
    if s.previous > 0 then
      local e = floor((now - s.start) / set[3])
      left = left - ceil(min(s.previous, left) * (set[4] - e) / set[4])
    end
    if s.count > 0 then
      reset = s.start + 2 * set[2] - now
    elseif s.previous > 0 then
      reset = s.start + set[2] - now
    end
    return left - s.count, reset
  end,

  mark = function(s) return s.serial end,

  -- settle charges the difference to the window that was charged, or gives it back, while that is the
  -- current one or the one before. Where nothing was charged, all is charged now.
  settle = function(s, set, now, charged, actual, mark)
    advance(s, set, now)
    local more, counter = actual - charged
    if charged == 0 or s.serial == mark then
      counter = 'count'
    elseif s.serial and s.serial - set[2] == mark then
      counter = 'previous'
    end
    if more == 0 or not counter then
      if not s.moved then return true end
    elseif more > 0 and s[counter] > MAX - more then
      return false
    else
      s[counter] = max(0, s[counter] + more)
    end
    charge(s, set, now, 0)
    s.saved = true
    return true
  end,

  -- save writes the state, to live until it says no more than an absent one.
  save = function(s, now)
    local ttl = max(1, ceil((s.til - now) / 1000))
    if packed then
      call('SET', s.key, struct.pack(LAYOUT, s.count, s.previous, s.serial, s.start), 'PX', ttl)
    else
      call('HSET', s.key, 'count', format('%d', s.count), 'previous', format('%d', s.previous),
        'serial', format('%d', s.serial), 'start', format('%d', s.start))
      call('PEXPIRE', s.key, ttl)
    end
  end,
}
