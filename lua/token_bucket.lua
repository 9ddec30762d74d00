-- token_bucket.lua: one bucket as a Hash or as one String; a leaky bucket too, whose backlog is what
-- the tokens lack of the burst. Mirrors limit.TokenBucket and its settle in limit/state.go: change
-- both, and internal/limit/testdata/token_bucket.json, together.
-- State: tokens (below 0: debt), rem (in 1/micros of a grain), at and til (µs since 1970; from til
-- on the state counts as absent), micros (the settings' at the time of writing).
-- Settings: {tokens, micros, grain, burst, initial, lowest}: tokens grains per micros µs, a grain
-- is so many tokens. Go has checked that nothing here leaves the integers below 2^53, in which
-- floor(a / b) is exact in float64.

local LAYOUT = '<ddddd'
local DAY = 86400000000

-- gain returns how many µs it takes to gain so many tokens, rem being gained already.
local function gain(set, tokens, rem)
  if tokens <= 0 then return 0 end
  local per, micros = set[1], set[2]
  local grains = ceil(tokens / set[3])
  local rounds = floor(grains / per)
  return rounds * micros + ceil(((grains - rounds * per) * micros - rem) / per)
end

-- decide and charge are what the fields of the same names say.
local function decide(s, set, now, cost)
  local micros, burst = set[2], set[4]
  local level, part = s.tokens, s.rem
  local moved, least = false, 0
  if level == nil or now >= s.til then
    level, part = set[5], 0
    moved = cost > 0 and cost <= burst and level < burst
  else
    if s.micros ~= micros then
      part = min(floor(part * micros / s.micros), micros - 1)
    end
    if level >= burst then level, part = burst, 0 end
    if level < set[6] then level = set[6] end
    local elapsed = now - s.at
    least = s.til
    if elapsed < 0 then
      moved, least = true, s.til + elapsed
    elseif elapsed >= gain(set, burst - level, part) then
      level, part = burst, 0
    else
      local per, rounds = set[1], floor(elapsed / micros)
      local gained = (elapsed - rounds * micros) * per + part
      local grains = floor(gained / micros)
      level = level + (rounds * per + grains) * set[3]
      part = gained - grains * micros
    end
  end
  s.level, s.part, s.moved, s.least, s.full = level, part, moved, least, nil
  if level >= cost then return 0 end
  if cost > burst then return -1 end
  return gain(set, cost - level, part)
end

local function charge(s, set, now, cost)
  local level = s.level - cost
  local full = gain(set, set[4] - level, s.part)
  local til = now + full
  -- Absent would mean the initial level, not full: so a full bucket is remembered for a day.
  if set[5] < set[4] then til = til + DAY end
  s.level, s.tokens, s.rem, s.at, s.til, s.micros = level, level, s.part, now, max(s.least, til), set[2]
  s.full = full
end

local function report(s, set)
  return s.level, s.full or gain(set, set[4] - s.level, s.part)
end

return {
  -- waits: it is a leaky bucket, of which a cost may be charged before it is there, to be waited for.
  waits = number == 2,

  new = function()
    return {key = nil, algorithm = nil, text = nil, saved = nil, tokens = nil, rem = nil, at = nil, til = nil,
      micros = nil, stored = nil, level = nil, part = nil, moved = nil, least = nil, full = nil}
  end,

  -- load reads the state. s.micros stays nil when it is absent; s.stored is the micros that Redis has, which save
  -- then need not write again.
  load = function(s)
    local tokens, rem, at, til, micros = read(s, packed, LAYOUT, 'tokens', 'rem', 'at', 'til', 'micros')
    if not tokens then return end
    if tokens % 1 + rem % 1 + at % 1 + til % 1 + micros % 1 == 0
      and tokens >= -MAX and tokens <= MAX and rem >= 0 and rem < micros and micros <= MAX
      and at >= 0 and til >= at and til <= MAX then
      s.tokens, s.rem, s.at, s.til, s.micros, s.stored = tokens, rem, at, til, micros, micros
    else
      s.broken = true
    end
  end,

  -- decide advances s to now, in s.level and s.part, and returns how many µs cost must still
  -- wait: 0 passes, -1 never does. s.moved says that the state must be saved in any case; s.least
  -- is the earliest til that it may be saved with.
  decide = decide,

  -- charge takes cost from the advanced s and makes it the state to save. til never gets earlier:
  -- else a key under two settings would count as absent when the smaller burst is full, and begin
  -- afresh at the larger.
  charge = charge,

  -- report returns what is left of the advanced s, and the µs until it is full.
  report = report,

  -- mark returns when the advanced s is full again, by which settle.lua knows whether something was
  -- charged after.
  mark = function(s, set, now) return now + s.full end,

  -- settle charges the difference to the bucket as it is now, or gives it back. Nothing can be given
  -- back to one that is as if unused.
  settle = function(s, set, now, charged, actual)
    local absent = s.tokens == nil or now >= s.til
    decide(s, set, now, 0)
    local more = actual - charged
    if more == 0 or absent and more < 0 then
      if absent or not s.moved then return true end
      more = 0
    elseif s.level - more < set[6] then
      return false
    elseif s.level - more >= set[4] then
      s.level, s.part, more = set[4], 0, 0
    end
    charge(s, set, now, more)
    s.saved = true
    return true
  end,

  -- save writes the state, to live until til.
  save = function(s, now)
    local ttl = max(1, ceil((s.til - now) / 1000))
    if packed then
      call('SET', s.key, struct.pack(LAYOUT, s.tokens, s.rem, s.at, s.til, s.micros), 'PX', ttl)
    else
      local tokens, rem, at, til = format('%d', s.tokens), format('%d', s.rem), format('%d', s.at), format('%d', s.til)
      if s.micros == s.stored then
        call('HSET', s.key, 'tokens', tokens, 'rem', rem, 'at', at, 'til', til)
      else
        call('HSET', s.key, 'tokens', tokens, 'rem', rem, 'at', at, 'til', til, 'micros', format('%d', s.micros))
      end
      call('PEXPIRE', s.key, ttl)
    end
  end,
}
