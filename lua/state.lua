-- state.lua: what the algorithms share to read a state: one of a few integers, as a Hash or packed into
-- one String of float64s; or a sorted set.

local call, pcall, format, tonumber = redis.call, redis.pcall, string.format, tonumber
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local MAX = 9007199254740992
local OUTSIDE = -2 -- the wait of a charge when now is outside the calendar periods that came along

-- foreign takes the error of a call that reads the state: s.broken says when the key holds something else;
-- any other error ends the script.
local function foreign(s, reply, ...)
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then call(...) end -- fails again
  s.broken = true
end

-- try makes a call that reads the state. The result is nil when the key holds something else.
local function try(s, ...)
  local reply = pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  foreign(s, reply, ...)
end

-- read returns the numbers in the fields that it is given; when it is packed those that layout says, which are
-- 8 bytes each. It returns nothing when the key is absent, and when it holds something else, which s.broken
-- says.
local function read(s, packed, layout, ...)
  if packed then
    local text = s.text
    if text and #text == 8 * select('#', ...) then return struct.unpack(layout, text) end
  else
    local texts = pcall('HMGET', s.key, ...)
    if texts.err then return foreign(s, texts, 'HMGET', s.key, ...) end
    if texts[1] then
      for i = 1, #texts do
        texts[i] = tonumber(texts[i])
        if not texts[i] then
          s.broken = true
          return
        end
      end
      return unpack(texts)
    end
  end
  s.broken = call('EXISTS', s.key) == 1
end
