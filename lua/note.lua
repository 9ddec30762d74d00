-- note.lua: a String of a script's own: what was granted under a request_id, or that a ticket was
-- finished. Its number is 0, its form always the String form; it is no algorithm to decide with.
-- s.text: what it says, nil when the key is absent. s.ttl: ms to live.

return {
  load = function(s)
    if not s.text then s.text = nil end -- MGET's false
    if s.text == nil and call('EXISTS', s.key) == 1 then s.broken = true end
  end,

  save = function(s)
    call('SET', s.key, s.text, 'PX', max(1, s.ttl))
  end,
}
