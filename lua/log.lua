-- log.lua: what sliding_window_log and leaky_bucket_log share: a log of requests as a sorted set. Mirrors
-- limit.entryLog: change both together.
-- State: score → when the entry was charged or has drained, in µs since 1970; the member begins with the sum
-- of all costs up to its own, as 16 digits, so that members are distinct and, of one score, in the order of
-- their charges; then the entry's own cost, and what the algorithm's text adds. Of entries that cost nothing
-- and so share their sum with the one before, the sum is followed by ~ and their number, as 16 digits.
--
-- An entry is {at, sum, zeros, cost, id, …}; its text is what stands behind the sum in its member, nil where
-- that is to be written anew. s.newest: the last entry, and s.sum its sum. s.base: how many stored entries, the
-- first ones, no longer count; nil until that is known. s.first: the first entry that counts, and s.before the
-- sum before it. s.tail: the last entries, where they differ from what is stored: they take the place of the
-- s.cut last stored ones when s is saved. s.drop: how many of the first are then removed. s.til: until when s
-- lives.

local DROPPED, AT_ONCE = 1000, 1000

-- entry reads a member. What is none breaks s.
local function entry(s, member, score)
  local sum, zeros, text, cost, rest = string.match(member, '^(%d+)~?(%d*)( (%d+) ?(.*))$')
  local at = tonumber(score)
  if sum and at and at % 1 == 0 and at >= 0 and at <= MAX then
    local e = {at = at, sum = tonumber(sum), zeros = tonumber(zeros) or 0, cost = tonumber(cost), text = text}
    if #sum == 16 and e.sum <= MAX and e.cost <= e.sum and s.algorithm.parse(e, rest) then return e end
  end
  s.broken = true
  return {at = 0, sum = 0, zeros = 0, cost = 0, wait = 0, short = 0, per = 1, id = ''}
end

local function member(s, e)
  local text = e.text
  if not text then
    local rest = s.algorithm.text(e)
    text = string.format(' %.0f', e.cost) .. (rest ~= '' and ' ' .. rest or '')
  end
  if e.zeros == 0 then return string.format('%016.0f', e.sum) .. text end
  return string.format('%016.0f~%016.0f', e.sum, e.zeros) .. text
end

-- range reads stored entries by their rank.
local function range(s, first, last)
  local got, list = call('ZRANGE', s.key, first, last, 'WITHSCORES'), {}
  for i = 1, #got, 2 do list[#list + 1] = entry(s, got[i], got[i + 1]) end
  return list
end

-- extend puts into the tail all entries from the rank on.
local function extend(s, rank)
  local list, tail = range(s, rank, -s.cut - 1), s.tail
  s.cut = s.cut + #list
  for i = 1, #tail do list[#list + 1] = tail[i] end
  s.tail = list
end

-- begin says how many stored entries no longer count, and which is the first that does.
local function begin(s, base, first)
  s.base, s.first = base, first
  s.before = first and first.sum - first.cost or s.sum
end

-- renumber puts all that counts into the tail, its sums beginning at 0. The rest is removed, and before
-- anything is written, since members may come again.
local function renumber(s)
  s.afresh = true
  extend(s, s.base)
  for i = 1, #s.tail do s.tail[i].sum = s.tail[i].sum - s.before end
  s.drop, s.first, s.sum, s.before = s.base, s.tail[1], s.sum - s.before, 0
end

-- forget removes some of what no longer counts.
local function forget(s) s.drop = max(s.drop, min(s.base, DROPPED)) end

local function add(s, e)
  if s.sum > MAX - e.cost then renumber(s) end
  forget(s)
  s.sum = s.sum + e.cost
  e.sum, e.zeros = s.sum, 0
  s.tail[#s.tail + 1] = e
  s.newest, s.first = e, s.first or e
end

-- named returns the place among members, whatever their scores, of the one of the decision named id.
local function named(s, members, id)
  for i = 1, #members do
    if string.sub(members[i], -#id) == id and entry(s, members[i], MAX).id == id then return i end
  end
end

-- find returns the place in the tail, which it extends, of the entry of the decision named id that was
-- charged with the score mark: a score only ever becomes less, and what is at most after no longer counts.
local function find(s, after, mark, id)
  if id == '' then return end
  for i = 1, #s.tail do
    if s.tail[i].id == id then return i end
  end
  if mark <= after then return end
  local members = call('ZRANGEBYSCORE', s.key, mark, mark)
  local i, rank = named(s, members, id), nil
  if i then
    rank = call('ZRANK', s.key, members[i])
  else -- it was moved with the clock, or is gone
    i = named(s, call('ZRANGE', s.key, s.base, -s.cut - 1), id)
    rank = i and s.base + i - 1
  end
  if not rank or rank < s.base then return end
  extend(s, max(s.base, rank - 1)) -- with the one before, whose zeros count
  return s.tail[1].id == id and 1 or 2
end

-- reprice gives the entry at i of the tail another cost.
local function reprice(s, i, cost)
  local tail = s.tail
  local more = cost - tail[i].cost
  tail[i].cost, tail[i].text, s.sum = cost, nil, s.sum + more
  for j = i, #tail do
    local e, prior = tail[j], tail[j - 1]
    e.sum = e.sum + more
    e.zeros = e.cost > 0 and 0 or prior and prior.zeros + 1 or 1
  end
end

-- trim removes the stored entries that the tail replaces, and those that no longer count.
local function trim(s)
  if s.cut > 0 then call('ZREMRANGEBYRANK', s.key, -s.cut, -1) end
  if s.drop > 0 then call('ZREMRANGEBYRANK', s.key, 0, s.drop - 1) end
end

return {
  load = function(s)
    s.tail, s.cut, s.drop, s.sum, s.before = {}, 0, 0, 0, 0
    local last = try(s, 'ZRANGE', s.key, -1, -1, 'WITHSCORES')
    if last and last[1] then
      s.newest = entry(s, last[1], last[2])
      s.sum, s.before = s.newest.sum, s.newest.sum
    else
      s.base = 0
    end
  end,

  -- look finds out what counts: what has a score above after. Mostly that is all, or all but one.
  look = function(s, after)
    if s.base then return end
    local two = call('ZRANGE', s.key, 0, 1, 'WITHSCORES')
    for i = 1, #two, 2 do
      if tonumber(two[i + 1]) > after then return begin(s, (i - 1) / 2, entry(s, two[i], two[i + 1])) end
    end
    local base = call('ZCOUNT', s.key, '-inf', after)
    begin(s, base, range(s, base, base)[1])
  end,

  -- move removes what has a score of at most gone, and puts into the tail what else has one above from:
  -- the caller sets their scores back.
  move = function(s, gone, from)
    local base = call('ZCOUNT', s.key, '-inf', gone)
    extend(s, max(base, call('ZCOUNT', s.key, '-inf', from)))
    local first, stored = s.tail[1], range(s, base, base)[1]
    if stored.sum < first.sum then first = stored end
    begin(s, base, first)
    s.newest, s.drop, s.moved = s.tail[#s.tail], base, true
  end,

  -- last returns nothing when cost passes now, else the entry that must be gone first. cost is at most most.
  last = function(s, most, cost)
    local room = most - cost
    if s.sum - s.before <= room then return end
    local enough, tail = s.sum - room, s.tail
    if s.first.sum >= enough then return s.first end
    if tail[1] and tail[1].sum - tail[1].cost < enough then
      local low, high = 1, #tail
      while low < high do
        local middle = floor((low + high) / 2)
        if tail[middle].sum >= enough then high = middle else low = middle + 1 end
      end
      return tail[low]
    end
    local low, high = s.base, call('ZCARD', s.key) - s.cut - 1
    while low < high and not s.broken do
      local middle = floor((low + high) / 2)
      if range(s, middle, middle)[1].sum >= enough then high = middle else low = middle + 1 end
    end
    return range(s, low, low)[1]
  end,

  add = add,

  -- oldest returns up to so many of the entries that count.
  oldest = function(s, most)
    local stored = min(s.base + most, call('ZCARD', s.key) - s.cut) - 1
    local list = stored >= s.base and range(s, s.base, stored) or {}
    for i = 1, #s.tail do
      if #list < most then list[#list + 1] = s.tail[i] end
    end
    return list
  end,

  -- settle settles a payment; after is what look was told. It returns false when sums would pass 2^53, and
  -- the place in the tail of an entry that it has repriced.
  settle = function(s, set, now, charged, actual, mark, id, after)
    local a, i = s.algorithm, nil
    a.decide(s, set, now, 0)
    s.saved = s.moved
    if charged == 0 and actual > 0 then
      if actual > MAX - (s.sum - s.before) then return false end
      a.charge(s, set, now, actual, id)
      s.saved = true
    elseif charged ~= actual then
      if actual - charged > MAX - s.sum then renumber(s) end
      i = find(s, after, mark, id)
      if i then
        if actual - s.tail[i].cost > MAX - s.sum then return false end
        reprice(s, i, actual)
        forget(s)
        s.saved = true
      end
    end
    a.charge(s, set, now, 0)
    return true, i
  end,

  -- remove takes the entry at i, which costs nothing, out of the tail.
  remove = function(s, i)
    table.remove(s.tail, i)
    s.newest = s.tail[#s.tail] or range(s, -s.cut - 1, -s.cut - 1)[1]
  end,

  -- save writes first where nothing but new entries come: then a Redis that is out of memory refuses it.
  save = function(s, now)
    if s.broken then return end
    local append = s.cut == 0 and not s.afresh
    if not append then trim(s) end
    local args = {}
    for i = 1, #s.tail do
      args[#args + 1], args[#args + 2] = s.tail[i].at, member(s, s.tail[i])
      if #args == 2 * AT_ONCE or i == #s.tail then
        call('ZADD', s.key, unpack(args))
        args = {}
      end
    end
    if append then trim(s) end
    call('PEXPIRE', s.key, max(1, ceil((s.til - now) / 1000)))
  end,
}
