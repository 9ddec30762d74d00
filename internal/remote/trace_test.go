package remote

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/lua"
)

// world is one random trace: limits whose settings change on the way, asked through the script on
// a real Redis and through local.Memory, at times that the test chooses.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	conn   *redistest.Conn
	script string
	memory *local.Memory
	limits []*limit.Limit
	now    int64
	wait   int64            // the retry-after of the last denial
	dies   map[string]int64 // when Redis would have dropped the key, by its TTL
}

// testHead stands before the script: the shebang makes Redis refuse keys that the call did not
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

func newWorld(t *testing.T, conn *redistest.Conn, seed uint64) *world {
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	sha, err := conn.Do("SCRIPT", "LOAD", testHead+lua.Decide())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, conn: conn, memory: memory, script: sha.(string),
		rng: rand.New(rand.NewPCG(seed, 7)), now: 1_780_000_000_000_000, dies: map[string]int64{},
	}
	for i := range 4 {
		l := &limit.Limit{Name: "l" + strconv.Itoa(i), Unit: limit.RequestsUnit}
		l.State = limit.StateForm(w.rng.IntN(2))
		l.Shadow = w.rng.IntN(4) == 0
		w.limits = append(w.limits, l)
		w.change(l)
	}
	return w
}

// log returns a random number between low and high, evenly spread over its logarithm.
func (w *world) log(low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + w.rng.Float64()*(math.Log(high)-math.Log(low))))
}

// change gives a limit new settings: rates from one a day to 1e9/s, bursts to 1e12.
func (w *world) change(l *limit.Limit) {
	for {
		burst := w.log(1, 1e12)
		if w.rng.IntN(2) == 0 {
			burst = w.log(1, 20)
		}
		initial := burst
		if w.rng.IntN(3) == 0 {
			initial = w.rng.Int64N(burst + 1)
		}
		var bucket limit.TokenBucket
		var err error
		if w.rng.IntN(4) == 0 {
			bucket, err = limit.NewDiscreteBucket(w.log(1, 1e6), w.log(1, 1e9), burst, initial)
		} else {
			intervals := []string{"1d", "7h", "1m", "1s", "30s", "13ms", "1us"}
			text := fmt.Sprintf("%d/%s", w.log(1, 1e9), intervals[w.rng.IntN(len(intervals))])
			if w.rng.IntN(3) == 0 {
				text = fmt.Sprintf("%d.%d/s", w.log(1, 1e4), w.log(1, 999))
			}
			rate, rateErr := limit.ParseRate(text)
			if rateErr != nil {
				w.t.Fatal(rateErr)
			}
			bucket, err = limit.NewTokenBucket(rate.Rate, burst, initial)
		}
		if err == nil {
			l.Settings = limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}
			return
		}
	}
}

// pause lets time pass, or steps the clock.
func (w *world) pause() {
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		w.now += w.log(1, 1e6)
	case 3, 4:
		w.now += w.log(1, 1e10)
	case 5:
		w.now += w.log(1, 3e14) // years
	case 6:
		w.dropExpired()
		w.now = max(1_000_000_000_000_000, w.now-w.log(1, 1e12))
	case 7, 8:
		w.now += w.wait
	case 9:
		w.now += max(0, w.wait-1)
	}
	w.now = min(w.now, 4_000_000_000_000_000)
	w.wait = 0
}

// dropExpired drops what has expired in both stores: once the clock has stepped back, one that
// still had such a state would go on with it, and one that had not would not.
func (w *world) dropExpired() {
	for key, dies := range w.dies {
		if w.now >= dies {
			w.do("DEL", key)
			if err := w.memory.Forget(w.t.Context(), limit.Charge{Key: key}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) cost(bucket limit.TokenBucket) int64 {
	switch w.rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return bucket.Burst
	case 2:
		return bucket.Burst + w.log(1, 10)
	default:
		return min(bucket.Burst, w.log(1, max(2, float64(bucket.Burst))))
	}
}

func (w *world) requests() []limit.Request {
	requests := make([]limit.Request, 1+w.rng.IntN(4))
	for i := range requests {
		for _, n := range w.rng.Perm(len(w.limits))[:1+w.rng.IntN(3)] {
			l := w.limits[n]
			settings := l.Settings // a copy: equal settings need not be the same ones
			requests[i].Charges = append(requests[i].Charges, limit.Charge{
				Limit: l, Settings: &settings, Cost: w.cost(settings.Bucket),
				Key: fmt.Sprintf("rl:{%s:%d}", l.Name, w.rng.IntN(2)),
			})
		}
	}
	return requests
}

// ask runs the script at w.now, and keeps each key's time to live, which must not run in real
// time.
func (w *world) ask(requests []limit.Request) []*limit.Decision {
	var c call
	c.pack(w.now, requests, func(time.Time) int64 { return 0 })
	for _, key := range c.keys {
		if dies, ok := w.dies[key]; ok && w.now >= dies && w.rng.IntN(2) == 0 {
			w.do("DEL", key)
		}
	}
	w.do("MULTI")
	w.do(append(append([]string{"EVALSHA", w.script, strconv.Itoa(len(c.keys))}, c.keys...), string(c.args))...)
	for _, key := range c.keys {
		w.do("PTTL", key)
		w.do("PERSIST", key)
	}
	replies := w.do("EXEC").([]any)
	text, ok := replies[0].(string)
	if !ok {
		w.t.Fatalf("the script failed: %v", replies[0])
	}
	for i, key := range c.keys {
		if ttl := replies[1+2*i].(int64); ttl >= 0 {
			w.dies[key] = w.now + (ttl+500)/1000*1000
		}
	}
	decisions := make([]*limit.Decision, len(requests))
	for i := range decisions {
		decisions[i] = new(limit.Decision)
	}
	now := readReply(text).now
	alone, err := unpack(text, requests, decisions)
	if err != nil || len(alone.expired)+len(alone.outside) > 0 || now != w.now {
		w.t.Fatalf("unpack: now %d, left alone %v, error %v", now, alone, err)
	}
	return decisions
}

func (w *world) do(args ...string) any {
	reply, err := w.conn.Do(args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if failure, ok := reply.(redistest.ReplyError); ok {
		w.t.Fatal(failure)
	}
	return reply
}

func (w *world) step(n int) {
	w.pause()
	if w.rng.IntN(30) == 0 {
		w.change(w.limits[w.rng.IntN(len(w.limits))])
	}
	requests := w.requests()
	got := w.ask(requests)
	want := make([]*limit.Decision, len(requests))
	for i := range want {
		want[i] = new(limit.Decision)
	}
	w.memory.DecideAt(w.now, requests, want)
	for i := range requests {
		if !slices.Equal(got[i].Verdicts, want[i].Verdicts) {
			w.t.Fatalf("step %d, request %d of %d at %d: Redis and memory differ\ncharges %+v\nredis  %+v\nmemory %+v",
				n, i, len(requests), w.now, requests[i].Charges, got[i].Verdicts, want[i].Verdicts)
		}
		for _, v := range got[i].Verdicts {
			if v.RetryAfter > 0 {
				w.wait = v.RetryAfter.Microseconds()
			}
		}
	}
}

// TestScriptAgreesWithMemory compares the script on a real Redis with the arithmetic in Go,
// verdict by verdict: levels, waits and resets to the microsecond.
func TestScriptAgreesWithMemory(t *testing.T) {
	server := redistest.Start(t)
	conn, err := redistest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	traces, steps := 12, 1500
	if !testing.Short() {
		traces, steps = 40, 5000
	}
	for seed := range traces {
		w := newWorld(t, conn, uint64(seed))
		for n := range steps {
			w.step(n)
		}
	}
}
