-- The load of every run of wrk, whichever server answers. Its arguments are the file of the questions,
-- a JSON body a line, and the number of the one to begin with. One question alone is left to wrk to
-- repeat; several are put together beforehand, so that asking costs no more than a look into a table.

local head = "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
local deck, at = {}, 0

function init(args)
   local bodies = {}
   for body in io.lines(args[1]) do
      bodies[#bodies + 1] = body
   end
   if #bodies == 1 then
      wrk.method, wrk.body = "POST", bodies[1]
      wrk.headers["Host"], wrk.headers["Content-Type"] = "bench", "application/json"
      return
   end
   for i, body in ipairs(bodies) do
      deck[i] = string.format(head, wrk.path, #body) .. body
   end
   at = args[2] % #deck
   request = function()
      at = at % #deck + 1
      return deck[at]
   end
end

function done(summary, latency)
   local errors = summary.errors
   print(string.format("bench: answers=%d micros=%d p50=%d p99=%d failures=%d connect=%d read=%d write=%d timeout=%d",
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
