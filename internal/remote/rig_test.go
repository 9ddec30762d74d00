package remote

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/lua"
)

// rig is what every random trace stands on: the scripts on a real Redis and local.Memory, at a time that
// the test chooses.
type rig struct {
	t       *testing.T
	rng     *rand.Rand
	conn    *redistest.Conn
	decider string // the hash of the script that decides
	settler string // of the one that settles
	memory  *local.Memory
	now     int64
	dies    map[string]int64 // when Redis would have dropped the key, by its time to live
}

// testHead stands before a script: the shebang makes Redis refuse keys that the call did not
// declare, and every time to live is a thousand times as long, so that none runs out in real time.
const testHead = `#!lua
local server = redis
local redis = setmetatable({call = function(command, key, ...)
  local args = {...}
  if command == 'SET' then args[3] = args[3] * 1000 end
  if command == 'PEXPIRE' then args[1] = args[1] * 1000 end
  return server.call(command, key, unpack(args))
end}, {__index = server})
`

// newRig returns a rig over an emptied Redis. The seed and the kind of trace make its random numbers.
func newRig(t *testing.T, conn *redistest.Conn, seed, kind uint64, now int64) rig {
	t.Helper()
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	r := rig{t: t, rng: rand.New(rand.NewPCG(seed, kind)), conn: conn, memory: memory, now: now, dies: map[string]int64{}}
	r.do("FLUSHALL")
	r.decider = r.do("SCRIPT", "LOAD", testHead+lua.Decide()).(string)
	r.settler = r.do("SCRIPT", "LOAD", testHead+lua.Settle()).(string)
	return r
}

// dial starts a Redis and returns a connection to it.
func dial(t *testing.T) *redistest.Conn {
	t.Helper()
	conn, err := redistest.Dial(redistest.Start(t).Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (w *rig) do(args ...string) any {
	w.t.Helper()
	reply, err := w.conn.Do(args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if failure, ok := reply.(redistest.ReplyError); ok {
		w.t.Fatal(failure)
	}
	return reply
}

// log returns a random number between low and high, evenly spread over its logarithm.
func (w *rig) log(low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + w.rng.Float64()*(math.Log(high)-math.Log(low))))
}

// dropExpired drops what has expired in both stores: once the clock has stepped back, one that still
// had such a state would go on with it, and one that had not would not.
func (w *rig) dropExpired() {
	for key, dies := range w.dies {
		if w.now < dies {
			continue
		}
		w.do("DEL", key)
		if err := w.memory.Forget(w.t.Context(), limit.Charge{Key: key, Settings: new(limit.Settings)}); err != nil {
			w.t.Fatal(err)
		}
		delete(w.dies, key)
	}
}
