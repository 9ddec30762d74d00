-- forget.lua: makes a limit's state as if it were never used, but for what is out on lease: it is dropped
-- when nothing is. It stands behind state.lua, batch.lua and the algorithms, as settle.lua does.
--
-- KEYS and what ARGV[1] begins with: see batch.lua. It carries one request: settings, counted from 1, of the
-- one key.
--
-- The reply is one msgpack array: now, then a code: 1 done, 5 now is outside the calendar periods that came
-- along.

local s, set = states[1], settings[args[pos + 1]]
out[2] = 1
local kept = not s.broken and s.algorithm.forget and s.algorithm.forget(s, set, now)
if kept == OUTSIDE then
  out[2] = 5
elseif kept then
  s.algorithm.save(s, now)
else
  call('DEL', s.key)
end
return cmsgpack.pack(out)
