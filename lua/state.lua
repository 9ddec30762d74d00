-- state.lua: what the algorithms share to read a state: one of a few integers, as a Hash or packed into
-- one String, or a sorted set.

local call, format, tonumber = redis.call, string.format, tonumber
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local MAX = 9007199254740992
local OUTSIDE = -2 -- the wait of a charge when now is outside the calendar periods that came along

-- try makes a call that reads the state. When the key holds something else, s.broken says so and the
-- result is nil; any other error ends the script.
local function try(s, ...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then call(...) end -- fails again
  s.broken = true
end

-- read returns the texts of the fields that it is given, which pattern finds in a packed state; nil when
-- the key is absent, and when it holds something else, which s.broken says.
local function read(s, pattern, ...)
  if s.packed then
    if s.text then
      local texts = {string.match(s.text, pattern)}
      if texts[1] then return texts end
    end
  else
    local texts = try(s, 'HMGET', s.key, ...)
    if not texts or texts[1] then return texts end
  end
  s.broken = call('EXISTS', s.key) == 1
end
