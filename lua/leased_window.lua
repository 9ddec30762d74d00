-- leased_window.lua: a fixed window of which nodes hold tokens on lease, as a Hash or as one String. What is
-- out counts as charged. Mirrors limit.leasedWindow: change both, and
-- internal/limit/testdata/leased_window.json, together.
-- State: count, serial and end as in fixed_window.lua; at (when it was true, µs since 1970); epoch, slot, out
-- and before as in leased_bucket.lua.
-- Settings: {limit, span, hold} in µs, or for a calendar period {limit, 0, hold, b0, b1, b2, b3}: see
-- fixed_window.lua.

local LAYOUT = '<dddddddd'
local integers, take = leases()

-- latest returns when a window that holds now ends at the latest.
local function latest(set, now)
  if set[2] > 0 then return now + set[2] end
  if now < set[5] then return set[5] end
  if now < set[6] then return set[6] end
  return set[7]
end

-- decide and charge are what the fields of the same names say. A window is changed in place, so deciding again
-- at the same now changes nothing further.
local function decide(s, set, now, cost)
  if set[2] == 0 and (now < set[4] or now >= set[7]) then return OUTSIDE end
  if not s.serial or now >= s.til then
    s.count, s.serial, s.out, s.before = 0, nil, 0, 0
  else
    local last, slot = latest(set, now), floor(now / set[3])
    if s.til > last then s.til, s.moved = last, true end
    if now < s.at then
      s.epoch, s.slot, s.out, s.before, s.moved = s.epoch + 1, slot, s.out + s.before, 0, true
    end
    if s.slot < slot - 1 then s.out = 0 end
    if s.slot < slot then s.before, s.out = s.out, 0 end
    s.slot, s.at = slot, now
  end
  if cost > set[1] then return -1 end
  if s.count <= set[1] - cost then return 0 end
  return s.til - now
end

local function charge(s, set, now, cost)
  if not s.serial then
    s.serial, s.til, s.at, s.epoch, s.slot = now, latest(set, now), now, now, floor(now / set[3])
  end
  s.count = s.count + cost
  s.saved = true
end

return {
  new = function()
    return {key = nil, algorithm = nil, text = nil, saved = nil, count = nil, serial = nil, til = nil, moved = nil,
      at = nil, epoch = nil, slot = nil, out = nil, before = nil}
  end,

  -- load reads the state. s.serial stays nil when it is absent.
  load = function(s)
    local count, serial, til, at, epoch, slot, out, before =
      read(s, packed, LAYOUT, 'count', 'serial', 'end', 'at', 'epoch', 'slot', 'out', 'before')
    if not count then return end
    if not integers(0, count, serial, til, at, epoch, slot, out, before) or serial == 0 or out + before > count then
      s.broken = true
      return
    end
    s.count, s.serial, s.til, s.at, s.epoch, s.slot, s.out, s.before = count, serial, til, at, epoch, slot, out, before
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

  out = function(s) return s.out + s.before end,

  mark = function(s) return s.serial end,

  -- settle is as in fixed_window.lua. What is out stays charged.
  settle = function(s, set, now, charged, actual, mark)
    if decide(s, set, now, 0) == OUTSIDE then return OUTSIDE end
    local more = actual - charged
    if more == 0 or charged > 0 and s.serial ~= mark then
      if s.moved then s.saved = true end
      return true
    end
    if more > 0 and s.count > MAX - more then return false end
    charge(s, set, now, max(more, s.out + s.before - s.count))
    return true
  end,

  -- take_back is as in leased_bucket.lua.
  take_back = function(s, set, now, args, first, last)
    if decide(s, set, now, 0) == OUTSIDE or not s.serial then return end
    if s.moved then s.saved = true end
    for i = first, last, 4 do
      local unused = take(s, args, i)
      if unused then s.count, s.saved = s.count - unused, true end
    end
  end,

  -- lend is as in leased_bucket.lua. No lease lasts longer than the window.
  lend = function(s, set, now, want)
    if decide(s, set, now, 0) == OUTSIDE then return 0, 0, 0, 0 end
    if s.moved then s.saved = true end
    local n = min(want, set[1] - s.count)
    if n <= 0 then return 0, 0, 0, 0 end
    charge(s, set, now, n)
    s.out = s.out + n
    return s.epoch, s.slot, n, floor(min(set[3], s.til - now) * 98 / 100)
  end,

  -- forget makes the count only what is out, under another serial, and reports whether anything is; or
  -- OUTSIDE.
  forget = function(s, set, now)
    if decide(s, set, now, 0) == OUTSIDE then return OUTSIDE end
    if s.out + s.before == 0 then return false end
    s.count, s.serial, s.saved = s.out + s.before, max(now, s.serial + 1), true
    return true
  end,

  -- save writes the state, to live until its window ends.
  save = function(s, now)
    local ttl = max(1, ceil((s.til - now) / 1000))
    if packed then
      call('SET', s.key, struct.pack(LAYOUT, s.count, s.serial, s.til, s.at, s.epoch, s.slot, s.out, s.before), 'PX', ttl)
    else
      call('HSET', s.key, 'count', format('%d', s.count), 'serial', format('%d', s.serial), 'end', format('%d', s.til),
        'at', format('%d', s.at), 'epoch', format('%d', s.epoch), 'slot', format('%d', s.slot),
        'out', format('%d', s.out), 'before', format('%d', s.before))
      call('PEXPIRE', s.key, ttl)
    end
  end,
}
