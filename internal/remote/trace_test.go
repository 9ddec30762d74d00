package remote

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/lua"
)

// world is one random trace: limits whose settings change on the way, asked and settled through the
// scripts on a real Redis and through local.Memory, at times that the test chooses.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	conn    *redistest.Conn
	script  string // the hash of the one that decides
	settler string // of the one that settles
	keeper  string
	memory  *local.Memory
	limits  []*limit.Limit
	now     int64
	calm    bool             // time passes and steps by seconds, not by years
	wait    int64            // the retry-after of the last denial
	dies    map[string]int64 // when Redis would have dropped the key, by its TTL
	ids     int              // given to requests so far
	granted []limit.Request  // with a Grant, some of which are asked again
	tickets []*limit.Ticket
	seen    map[string]int // what has happened, how often
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

// keeper returns the keys' times to live, and makes them too long to run out.
const keeper = `
local left = {}
for i, key in ipairs(KEYS) do
  left[i] = redis.call('PTTL', key)
  redis.call('PEXPIRE', key, '4000000000000000')
end
return left
`

// untouched is keeper's time to live, which no script gives: a key that still has it was not written.
const untouched = 4_000_000_000_000_000

func newWorld(t *testing.T, conn *redistest.Conn, seed uint64, algorithms ...limit.Algorithm) *world {
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, conn: conn, memory: memory,
		rng: rand.New(rand.NewPCG(seed, 7)), now: 1_780_000_000_000_000,
		dies: map[string]int64{}, seen: map[string]int{},
	}
	w.do("FLUSHALL")
	w.script = w.do("SCRIPT", "LOAD", testHead+lua.Decide()).(string)
	w.settler = w.do("SCRIPT", "LOAD", testHead+lua.Settle()).(string)
	w.keeper = w.do("SCRIPT", "LOAD", keeper).(string)
	for i, algorithm := range algorithms {
		l := &limit.Limit{Name: "l" + strconv.Itoa(i), Unit: limit.RequestsUnit}
		if algorithm == limit.TokenBucketAlgorithm {
			l.State = limit.StateForm(w.rng.IntN(2))
		}
		l.Shadow = w.rng.IntN(4) == 0
		l.Settings.Algorithm = algorithm
		w.limits = append(w.limits, l)
		w.change(l)
	}
	return w
}

// log returns a random number between low and high, evenly spread over its logarithm.
func (w *world) log(low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + w.rng.Float64()*(math.Log(high)-math.Log(low))))
}

// pause lets time pass, or steps the clock.
func (w *world) pause() {
	long, years, back := 1e10, 3e14, 1e12
	if w.calm {
		long, years, back = 1e6, 1e7, 1e6
	}
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		w.now += w.log(1, 1e6)
	case 3, 4:
		w.now += w.log(1, long)
	case 5:
		w.now += w.log(1, years)
	case 6:
		w.dropExpired()
		w.now = max(1_000_000_000_000_000, w.now-w.log(1, back))
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

// cost returns a cost from nothing to more than can pass.
func (w *world) cost(s *limit.Settings) int64 {
	capacity, cost := s.Capacity(), int64(0)
	switch w.rng.IntN(6) {
	case 0:
	case 1:
		cost = capacity
	case 2:
		cost = capacity + w.log(1, 10)
	default:
		cost = min(capacity, w.log(1, max(2, float64(capacity))))
	}
	if s.Algorithm == limit.ConcurrencyAlgorithm {
		return min(cost, 1)
	}
	return cost
}

func (w *world) requests() []limit.Request {
	requests := make([]limit.Request, 1+w.rng.IntN(4))
	for i := range requests {
		r := &requests[i]
		if len(w.granted) > 0 && w.rng.IntN(8) == 0 {
			*r = w.again()
			continue
		}
		for _, n := range w.rng.Perm(len(w.limits))[:min(len(w.limits), 1+w.rng.IntN(3))] {
			l := w.limits[n]
			settings := l.Settings // a copy: equal settings need not be the same ones
			if w.rng.IntN(6) == 0 {
				settings = w.other(l) // as another version of the config may have them
			}
			r.Charges = append(r.Charges, limit.Charge{
				Limit: l, Settings: &settings, Cost: w.cost(&settings),
				Key: fmt.Sprintf("rl:{%s:%d}", l.Name, w.rng.IntN(2)),
			})
		}
		w.dress(r)
	}
	return requests
}

// dress gives a request some of what requests may have besides their charges.
func (w *world) dress(r *limit.Request) {
	r.List = w.rng.IntN(5) == 0
	if w.rng.IntN(3) == 0 {
		r.MaxWait = time.Duration(w.log(1, 1e9)) * time.Microsecond
	}
	if w.rng.IntN(3) == 0 {
		return
	}
	w.ids++
	r.ID = fmt.Sprintf("ID%d", w.ids)
	r.Life = time.Duration(w.log(1, 1e14)) * time.Microsecond
	if w.rng.IntN(4) == 0 {
		var keys []string
		for i := range r.Charges {
			keys = append(keys, r.Charges[i].Key)
		}
		r.Grant = fmt.Sprintf("%s:~request:%s-%d", keys[0], strings.Join(keys, ","), w.rng.IntN(2))
		r.GrantTTL = time.Duration(w.log(1, 1e7)) * time.Millisecond
	}
}

// again returns a request of before as it would be asked again: by the settings of today, at times with
// another cost, or ready for another wait.
func (w *world) again() limit.Request {
	r := w.granted[w.rng.IntN(len(w.granted))]
	r.Charges = slices.Clone(r.Charges)
	for i := range r.Charges {
		settings := r.Charges[i].Limit.Settings
		r.Charges[i].Settings = &settings
	}
	if c := &r.Charges[w.rng.IntN(len(r.Charges))]; w.rng.IntN(4) == 0 {
		c.Cost = w.cost(c.Settings)
	}
	grant, ttl := r.Grant, r.GrantTTL
	w.dress(&r)
	w.ids++
	r.Grant, r.GrantTTL, r.ID = grant, ttl, fmt.Sprintf("ID%d", w.ids)
	return r
}

// run runs a script at w.now over what c holds, and keeps each key's time to live, which must not run
// in real time.
func (w *world) run(script string, c *call) string {
	for i, key := range c.keys {
		if dies, ok := w.dies[key]; ok && w.now >= dies && (c.kinds[i] == noteKind || w.rng.IntN(2) == 0) {
			w.do("DEL", key)
		}
	}
	keys := append([]string{strconv.Itoa(len(c.keys))}, c.keys...)
	keep := append([]string{"EVALSHA", w.keeper}, keys...)
	replies := w.transaction(
		keep, // for what a test has planted
		append(append([]string{"EVALSHA", script}, keys...), string(c.args)),
		keep,
	)
	text, ok := replies[1].(string)
	if !ok {
		w.t.Fatalf("the script failed: %v", replies[1])
	}
	for i, ttl := range replies[2].([]any) {
		switch ttl := ttl.(int64); {
		case ttl == -1:
			w.t.Fatalf("%s has no time to live", c.keys[i])
		case ttl >= 0 && ttl < untouched*9/10:
			w.dies[c.keys[i]] = w.now + (ttl+500)/1000*1000
		}
	}
	return text
}

// transaction sends commands in one go, and returns their replies.
func (w *world) transaction(commands ...[]string) []any {
	w.t.Helper()
	commands = slices.Concat([][]string{{"MULTI"}}, commands, [][]string{{"EXEC"}})
	for _, command := range commands {
		if err := w.conn.Send(command...); err != nil {
			w.t.Fatal(err)
		}
	}
	var last any
	for range commands {
		var err error
		if last, err = w.conn.Receive(); err != nil {
			w.t.Fatal(err)
		}
	}
	replies, ok := last.([]any)
	if !ok {
		w.t.Fatalf("the transaction failed: %v", last)
	}
	return replies
}

// ask runs the script that decides at w.now.
func (w *world) ask(requests []limit.Request) []*limit.Decision {
	var c call
	c.pack(w.now, requests, func(time.Time) int64 { return 0 })
	text := w.run(w.script, &c)
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

// both decides requests in Redis and in memory, and returns the decisions, which must not differ.
func (w *world) both(requests ...limit.Request) []*limit.Decision {
	w.t.Helper()
	got := w.ask(requests)
	want := make([]*limit.Decision, len(requests))
	for i := range want {
		want[i] = new(limit.Decision)
	}
	w.memory.DecideAt(w.now, requests, want)
	for i := range requests {
		if !sameDecision(got[i], want[i]) {
			w.t.Fatalf("request %d of %d at %d: Redis and memory differ\nrequest %+v\n%s\nredis  %+v\nmemory %+v",
				i, len(requests), w.now, requests[i], settingsOf(requests[i].Charges), got[i], want[i])
		}
		got[i].Conclude()
	}
	return got
}

func settingsOf(charges []limit.Charge) string {
	var b strings.Builder
	for i := range charges {
		fmt.Fprintf(&b, "%s %s: %+v\n", charges[i].Key, charges[i].Settings.Algorithm, *charges[i].Settings)
	}
	return b.String()
}

// sameDecision reports whether two decisions are alike in all but the tier; of one with an error nothing
// else is valid.
func sameDecision(a, b *limit.Decision) bool {
	if a.Err != nil || b.Err != nil {
		return sameError(a.Err, b.Err)
	}
	return a.ID == b.ID && a.At == b.At && a.Age == b.Age && a.Expires == b.Expires &&
		slices.Equal(a.Verdicts, b.Verdicts) && slices.EqualFunc(a.Lists, b.Lists, slices.Equal)
}

func (w *world) step(n int) {
	w.pause()
	if w.rng.IntN(30) == 0 {
		w.change(w.limits[w.rng.IntN(len(w.limits))])
	}
	requests := w.requests()
	decisions := w.both(requests...)
	for i, d := range decisions {
		w.note(&requests[i], d)
	}
	for range w.rng.IntN(3) {
		w.pause()
		w.settleSomething()
	}
}

// note remembers what may be asked or settled later, and counts what has happened.
func (w *world) note(r *limit.Request, d *limit.Decision) {
	switch {
	case d.Err != nil:
		w.seen["other cost"]++
		return
	case d.ID != r.ID:
		w.seen["repeated"]++
	case r.Grant != "" && d.Allowed:
		w.granted = append(w.granted, *r)
		if len(w.granted) > 20 {
			w.granted = w.granted[1:]
		}
	}
	if d.Hold() > 0 {
		w.seen["held"]++
	}
	for _, v := range d.Verdicts {
		w.seen[v.Settings.Algorithm.String()+map[bool]string{true: " allowed", false: " denied"}[v.Allowed]]++
		if v.RetryAfter > 0 {
			w.wait = v.RetryAfter.Microseconds()
		}
	}
	for _, list := range d.Lists {
		w.seen["listed"] += len(list)
	}
	if t := ticketOf(r, d); t != nil {
		w.tickets = append(w.tickets, t)
		if len(w.tickets) > 30 {
			w.tickets = slices.Delete(w.tickets, 0, 1+w.rng.IntN(5))
		}
	}
}

// TestScriptAgreesWithMemory compares the scripts on a real Redis with the embedded store, decision by
// decision and settlement by settlement: levels, waits and resets to the microsecond, ids, lists, errors.
func TestScriptAgreesWithMemory(t *testing.T) {
	server := redistest.Start(t)
	conn, err := redistest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buckets := []limit.Algorithm{limit.TokenBucketAlgorithm, limit.LeakyBucketAlgorithm}
	for _, tt := range []struct {
		name       string
		calm       bool
		algorithms []limit.Algorithm
	}{
		{"token buckets", false, []limit.Algorithm{buckets[0], buckets[0], buckets[0]}},
		{"slots", true, []limit.Algorithm{limit.ConcurrencyAlgorithm, limit.ConcurrencyAlgorithm}},
		{"buckets and slots", false, append(buckets, limit.LeakyBucketAlgorithm, limit.ConcurrencyAlgorithm, limit.ConcurrencyAlgorithm)},
		{"everything", false, append(limit.Algorithms(), limit.FixedWindowAlgorithm)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			traces, steps := 4, 1000
			if !testing.Short() {
				traces, steps = 8, 4000
			}
			seen := map[string]int{}
			for seed := range traces {
				w := newWorld(t, conn, uint64(seed), tt.algorithms...)
				w.seen, w.calm = seen, tt.calm
				for n := range steps {
					w.step(n)
				}
			}
			for _, thing := range expected(tt.algorithms) {
				if seen[thing] == 0 {
					t.Errorf("the traces had nothing %s: %v", thing, seen)
				}
			}
		})
	}
}

// expected lists what happens in a trace over limits of the given algorithms.
func expected(algorithms []limit.Algorithm) []string {
	all := []string{"repeated", "finished", "finished before", "given back", "not given back", "renewed", "expired"}
	for _, a := range algorithms {
		all = append(all, a.String()+" allowed", a.String()+" denied")
		switch a {
		case limit.LeakyBucketAlgorithm:
			all = append(all, "held")
		case limit.ConcurrencyAlgorithm:
			all = append(all, "listed")
		}
	}
	return all
}
