-- state.lua: what the algorithms share to read a state: one of a few integers, as a Hash or packed into
-- one String, or a sorted set.

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

-- read returns the texts of the fields that it is given, which pattern finds in a packed state; nil when
-- the key is absent, and when it holds something else, which s.broken says.
local function read(s, pattern, ...)
  if s.packed then
    if s.text then
      local texts = {string.match(s.text, pattern)}
      if texts[1] then return texts end
    end
  else
    local texts = pcall('HMGET', s.key, ...)
    if texts[1] then return texts end
    if texts.err then return foreign(s, texts, 'HMGET', s.key, ...) end
  end
  s.broken = call('EXISTS', s.key) == 1
end
