-- leased_bucket.lua: a token bucket of which nodes hold tokens on lease, as a Hash or as one String. What
-- is out counts as part of the bucket. Mirrors limit.leasedBucket: change both, and
-- internal/limit/testdata/leased_bucket.json, together.
-- State: tokens, rem, at, til and micros as in token_bucket.lua; epoch (names the state: when it was made,
-- and one more for each step back of the clock), slot (the current one: at / hold), out and before (tokens
-- out on lease from that slot, and from the one before it).
-- Settings: {tokens, micros, grain, burst, initial, lowest, hold}: as in token_bucket.lua, and µs.

local LAYOUT = '<ddddddddd'
local DAY = 86400000000
local integers, take = leases()

-- gain returns how many µs it takes to gain so many tokens, rem being gained already.
local function gain(set, tokens, rem)
  if tokens <= 0 then return 0 end
  local per, micros = set[1], set[2]
  local grains = ceil(tokens / set[3])
  local rounds = floor(grains / per)
  return rounds * micros + ceil(((grains - rounds * per) * micros - rem) / per)
end

-- most returns what the bucket holds at most while so many tokens are out.
local function most(set, out) return max(set[4] - out, set[6]) end

-- refill returns the level and the part of a grain that so many µs make of these.
local function refill(set, level, part, full, elapsed)
  if level >= full or elapsed >= gain(set, full - level, part) then return full, 0 end
  local per, micros = set[1], set[2]
  local rounds = floor(elapsed / micros)
  local gained = (elapsed - rounds * micros) * per + part
  local grains = floor(gained / micros)
  return level + (rounds * per + grains) * set[3], gained - grains * micros
end

-- wait returns how many µs after now the advanced s holds cost, if nobody takes or reports anything.
local function wait(s, set, now, cost)
  local level, part, out, before = s.level, s.part, s.out, s.before
  local at, edge = now, (s.slot + 1) * set[7]
  while out + before > 0 do
    local full = most(set, out + before)
    if cost <= full then
      local passes = at + gain(set, cost - level, part)
      if passes <= edge then return passes - now end
    end
    level, part = refill(set, level, part, full, edge - at)
    at, edge, before, out = edge, edge + set[7], out, 0
  end
  return at - now + gain(set, cost - level, part)
end

-- advance brings a state that is not absent to now. At each edge of a slot it first refills up to there
-- with what was out before.
local function advance(s, set, now)
  local hold, at, level, part = set[7], s.at, s.tokens, s.rem
  local epoch, slot, out, before = unpack(s.leases)
  s.least, s.moved = s.til, now < at
  if s.micros ~= set[2] then part = min(floor(part * set[2] / s.micros), set[2] - 1) end
  if level < set[6] then level = set[6] end
  if now < at then
    s.least = s.til + now - at
    epoch, slot, out, before, at = epoch + 1, floor(now / hold), out + before, 0, now
  end
  local edge = (slot + 1) * hold
  while out + before > 0 and edge <= now do
    level, part = refill(set, level, part, most(set, out + before), edge - at)
    at, edge, before, out = edge, edge + hold, out, 0
  end
  s.level, s.part = refill(set, level, part, most(set, out + before), now - at)
  s.epoch, s.slot, s.out, s.before = epoch, floor(now / hold), out, before
end

local function absent(s, now) return s.tokens == nil or now >= s.til end

-- decide and charge are what the fields of the same names say.
local function decide(s, set, now, cost)
  if absent(s, now) then
    s.level, s.part, s.least = set[5], 0, 0
    s.epoch, s.slot, s.out, s.before = now, floor(now / set[7]), 0, 0
    s.moved = cost > 0 and cost <= set[4] and set[5] < set[4]
  else
    advance(s, set, now)
  end
  if cost > set[4] then return -1 end
  return wait(s, set, now, cost)
end

local function charge(s, set, now, cost)
  local level = s.level - cost
  local til = now + gain(set, set[4] - level, 0) + 2 * set[7]
  -- Absent would mean the initial level, not full: so a full bucket is remembered for a day.
  if set[5] < set[4] then til = til + DAY end
  s.level, s.tokens, s.rem, s.at, s.til, s.micros = level, level, s.part, now, max(s.least, til), set[2]
  s.leases = {s.epoch, s.slot, s.out, s.before}
  s.saved = true
end

-- credit gives the advanced s tokens back, or takes some, but never fills the bucket above what is out.
local function credit(s, set, tokens)
  local full = most(set, s.out + s.before)
  s.level = s.level + tokens
  if s.level >= full then s.level, s.part = full, 0 end
end

return {
  new = function()
    return {key = nil, algorithm = nil, text = nil, saved = nil, tokens = nil, rem = nil, at = nil, til = nil,
      micros = nil, leases = nil, level = nil, part = nil, moved = nil, least = nil, epoch = nil, slot = nil,
      out = nil, before = nil}
  end,

  -- load reads the state. s.tokens stays nil when it is absent.
  load = function(s)
    local tokens, rem, at, til, micros, epoch, slot, out, before =
      read(s, packed, LAYOUT, 'tokens', 'rem', 'at', 'til', 'micros', 'epoch', 'slot', 'out', 'before')
    if not tokens then return end
    if not integers(-MAX, tokens, rem, at, til, micros, epoch, slot, out, before) or rem >= micros or til < at or out + before > MAX then
      s.broken = true
      return
    end
    s.tokens, s.rem, s.at, s.til, s.micros, s.leases = tokens, rem, at, til, micros, {epoch, slot, out, before}
  end,

  -- decide advances s to now, in s.level, s.part, s.epoch, s.slot, s.out and s.before, and returns how many
  -- µs cost must still wait: 0 passes, -1 never does. s.moved says that the state must be saved in any case;
  -- s.least is the earliest til that it may be saved with.
  decide = decide,

  -- charge takes cost from the advanced s and makes it the state to save, for two holds more than it takes
  -- to fill the bucket. The part of a grain that is gained already does not count: it is lost when what is out
  -- stops the refill.
  charge = charge,

  -- report returns what is left of the advanced s, and the µs until it is as if unused.
  report = function(s, set, now) return s.level, wait(s, set, now, set[4]) end,

  out = function(s) return s.out + s.before end,

  mark = function(s, set, now) return now + wait(s, set, now, set[4]) end,

  -- settle charges the difference to the bucket as it is now, or gives it back. Nothing can be given
  -- back to one that is as if unused.
  settle = function(s, set, now, charged, actual)
    local gone = absent(s, now)
    decide(s, set, now, 0)
    local more = actual - charged
    if more == 0 or gone and more < 0 then
      if not gone and s.moved then charge(s, set, now, 0) end
      return true
    end
    if s.level - more < set[6] then return false end
    credit(s, set, -more)
    charge(s, set, now, 0)
    return true
  end,

  -- take_back takes the reports in args from first to last, four numbers each: epoch, slot, used, unused.
  take_back = function(s, set, now, args, first, last)
    if absent(s, now) then return end
    advance(s, set, now)
    local changed = s.moved
    for i = first, last, 4 do
      local unused = take(s, args, i)
      if unused then
        credit(s, set, unused)
        changed = true
      end
    end
    if changed then charge(s, set, now, 0) end
  end,

  -- lend lends up to want tokens, and returns epoch, slot, how many, and for how many µs they may be handed
  -- out.
  lend = function(s, set, now, want)
    decide(s, set, now, 0)
    local n = min(want, s.level)
    if n <= 0 then
      if s.moved then charge(s, set, now, 0) end
      return 0, 0, 0, 0
    end
    s.out = s.out + n
    charge(s, set, now, n)
    return s.epoch, s.slot, n, floor(set[7] * 98 / 100)
  end,

  -- forget fills a bucket of which something is out as far as any settings of its key let it be filled, and
  -- reports whether there is one.
  forget = function(s, set, now)
    if absent(s, now) then return false end
    advance(s, set, now)
    if s.out + s.before == 0 then return false end
    s.level, s.part, s.least = set[5] == set[4] and MAX or set[5], 0, 0
    charge(s, set, now, 0)
    return true
  end,

  -- save writes the state, to live until til.
  save = function(s, now)
    local ttl = max(1, ceil((s.til - now) / 1000))
    local epoch, slot, out, before = unpack(s.leases)
    if packed then
      call('SET', s.key, struct.pack(LAYOUT, s.tokens, s.rem, s.at, s.til, s.micros, epoch, slot, out, before), 'PX', ttl)
    else
      call('HSET', s.key, 'tokens', format('%d', s.tokens), 'rem', format('%d', s.rem), 'at', format('%d', s.at),
        'til', format('%d', s.til), 'micros', format('%d', s.micros), 'epoch', format('%d', epoch),
        'slot', format('%d', slot), 'out', format('%d', out), 'before', format('%d', before))
      call('PEXPIRE', s.key, ttl)
    end
  end,
}
