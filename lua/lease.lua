-- lease.lua: what the leased algorithms share.

-- integers reports whether the numbers are integers from 0, the first from lowest.
local function integers(lowest, ...)
  for i = 1, select('#', ...) do
    local n = select(i, ...)
    if n % 1 ~= 0 or n > MAX or n < lowest then return false end
    lowest = 0
  end
  return true
end

-- take takes the report that begins at args[i] in the advanced s: epoch, slot, used, unused. It returns how
-- many tokens that gives back; nil when it is of a slot that is not known, or of more tokens than are out.
local function take(s, args, i)
  local age, used, unused = s.slot - args[i + 1], args[i + 2], args[i + 3]
  local of = age == 0 and 'out' or 'before'
  if args[i] ~= s.epoch or age < 0 or age > 1 or used > s[of] or unused > s[of] - used then return end
  s[of] = s[of] - used - unused
  return unused
end

return integers, take
