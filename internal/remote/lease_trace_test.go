package remote

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/lua"
)

// leaseWorld is one random trace over leased limits among others: beside what a world does, requests
// bring reports, true and false ones, and are lent tokens.
type leaseWorld struct {
	*world
	held []held
}

// held is what is left of a lease.
type held struct {
	limit.Lease
	of  *limit.Limit
	key string
}

func newLeaseWorld(t *testing.T, conn *redistest.Conn, seed uint64) *leaseWorld {
	b, f := limit.TokenBucketAlgorithm, limit.FixedWindowAlgorithm
	w := &leaseWorld{world: newWorld(t, conn, seed, b, b, f, f, f, b, limit.SlidingWindowLogAlgorithm, limit.LeakyBucketAlgorithm)}
	w.calm = seed%2 == 0
	for _, l := range w.limits[:5] {
		l.State = limit.StateForm(w.rng.IntN(2))
		s, err := l.Settings.Leased(w.log(1000, 1e8))
		if err != nil {
			t.Fatal(err)
		}
		l.Settings = s
	}
	return w
}

// pause goes on to where slots change, more often than not.
func (w *leaseWorld) pause() {
	hold := w.limits[w.rng.IntN(5)].Settings.Hold
	switch w.rng.IntN(6) {
	case 0, 1:
		w.world.pause()
	case 2:
		w.now = (w.now/hold+1)*hold - 1 + w.rng.Int64N(3)
	case 3:
		w.now += w.rng.Int64N(hold)
	case 4:
		w.dropExpired()
		w.now -= w.rng.Int64N(2 * hold)
	}
	w.now = min(w.now, 4_000_000_000_000_000) // as the world's own pause has it
}

// orders gives requests something to say of leases.
func (w *leaseWorld) orders(requests []limit.Request) {
	for i := range requests {
		for range w.rng.IntN(3) {
			l := w.limits[w.rng.IntN(5)]
			settings := l.Settings
			if w.rng.IntN(8) == 0 {
				settings = w.other(l)
			}
			o := limit.LeaseOrder{Limit: l, Settings: &settings, Key: fmt.Sprintf("rl:{%s:%d}", l.Name, w.rng.IntN(2))}
			if w.rng.IntN(3) > 0 {
				o.Want = w.cost(&settings)
			}
			for range w.rng.IntN(3) {
				if len(w.held) > 0 {
					w.report(&o)
				}
			}
			requests[i].Orders = append(requests[i].Orders, o)
		}
		if len(requests[i].Orders) > 0 && w.rng.IntN(4) == 0 {
			requests[i] = limit.Request{Orders: requests[i].Orders}
		}
	}
}

// report adds what became of a lease to an order on its key, or something false.
func (w *leaseWorld) report(o *limit.LeaseOrder) {
	i := w.rng.IntN(len(w.held))
	h := &w.held[i]
	if h.key == o.Key || w.rng.IntN(3) > 0 {
		settings := h.of.Settings
		o.Limit, o.Key, o.Settings = h.of, h.key, &settings
	}
	used, unused := w.rng.Int64N(h.Tokens+1), int64(0)
	unused = w.rng.Int64N(h.Tokens - used + 1)
	r := limit.LeaseReport{Epoch: h.Epoch, Slot: h.Slot, Used: used, Unused: unused}
	switch w.rng.IntN(12) {
	case 0:
		r.Epoch += w.rng.Int64N(3) - 1
	case 1:
		r.Slot += w.rng.Int64N(5) - 2
	case 2:
		r.Used, r.Unused = w.log(1, 1e15), w.log(1, limit.MaxNumber)
	default:
		h.Tokens -= used + unused
	}
	o.Reports = append(o.Reports, r)
	if h.Tokens == 0 || w.rng.IntN(10) == 0 {
		w.held = slices.Delete(w.held, i, i+1)
	}
}

func (w *leaseWorld) step() {
	w.pause()
	if w.rng.IntN(30) == 0 {
		w.change(w.limits[w.rng.IntN(len(w.limits))])
	}
	requests := w.requests()
	w.orders(requests)
	for i, d := range w.both(requests...) {
		if len(d.Leases) != len(requests[i].Orders) {
			w.t.Fatalf("%d leases for %d orders", len(d.Leases), len(requests[i].Orders))
		}
		for j, lease := range d.Leases {
			if lease.Tokens > 0 {
				w.seen["lent"]++
				w.held = append(w.held, held{lease, requests[i].Orders[j].Limit, requests[i].Orders[j].Key})
			}
		}
		for _, v := range d.Verdicts {
			w.seen["out"] += int(min(1, v.Out))
		}
		if len(requests[i].Charges) > 0 {
			w.note(&requests[i], d)
		} else if !d.Allowed || len(d.Verdicts) > 0 {
			w.t.Fatalf("orders alone: %+v", d)
		}
	}
	if len(w.held) > 40 {
		w.held = slices.Delete(w.held, 0, 20)
	}
	if w.rng.IntN(4) == 0 {
		w.pause()
		w.settleSomething()
	}
	if w.rng.IntN(20) == 0 {
		w.pause()
		l := w.limits[w.rng.IntN(len(w.limits))]
		settings := l.Settings
		charge := limit.Charge{Limit: l, Settings: &settings, Key: "rl:{" + l.Name + ":" + strconv.Itoa(w.rng.IntN(2)) + "}"}
		w.forget(charge)
		w.memory.ForgetAt(w.now, charge)
		w.seen["forgotten"]++
	}
}

// forget runs the script that forgets at w.now.
func (w *world) forget(charge limit.Charge) {
	w.t.Helper()
	var c call
	c.packForget(w.now, &charge, unclocked)
	text := w.run(w.do("SCRIPT", "LOAD", testHead+lua.Forget()).(string), &c)
	if outside, err := unpackForget(text); outside || err != nil {
		w.t.Fatalf("forget: outside %v, %v", outside, err)
	}
}

// TestLeaseScriptsAgreeWithMemory compares the scripts on a real Redis with the arithmetic in Go over
// leased limits, mixed with strict ones: verdicts, what is out, and what is lent.
func TestLeaseScriptsAgreeWithMemory(t *testing.T) {
	conn := dial(t)
	traces, steps := 8, 1000
	if !testing.Short() {
		traces, steps = 30, 4000
	}
	seen := map[string]int{}
	for seed := range traces {
		w := newLeaseWorld(t, conn, uint64(seed))
		w.seen = seen
		for range steps {
			w.step()
		}
	}
	for _, thing := range []string{"lent", "out", "forgotten", "repeated", "finished", "token_bucket denied", "fixed_window denied"} {
		if seen[thing] < 10 {
			t.Errorf("the traces had hardly anything %s: %v", thing, seen)
		}
	}
}
