-- state.lua: what the algorithms share to read a state of a few integers, as a Hash or packed into
-- one String.

local call = redis.call
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local MAX = 9007199254740992

-- read returns the texts of the algorithm's fields; nil when the key is absent, and when it holds
-- something else, which s.broken says.
local function read(s, fields, pattern)
  if s.packed then
    if s.text then
      local texts = {string.match(s.text, pattern)}
      if texts[1] then return texts end
    end
  else
    local texts = redis.pcall('HMGET', s.key, unpack(fields))
    if texts[1] then return texts end
    if texts.err and not string.find(texts.err, 'WRONGTYPE', 1, true) then
      call('HMGET', s.key, unpack(fields)) -- fails again, and so ends the script
    end
  end
  s.broken = call('EXISTS', s.key) == 1
end
