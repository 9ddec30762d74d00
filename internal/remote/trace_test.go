package remote

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

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
		slices.Equal(a.Verdicts, b.Verdicts) && slices.EqualFunc(a.Lists, b.Lists, slices.Equal) && slices.Equal(a.Leases, b.Leases)
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
	conn := dial(t)
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
