package limit_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// randomLog returns settings of one of the logs. Windows and drains last from 1µs to years; with settings
// to change from, the window stays. A rate's tokens are few enough for every product to be exact.
func randomLog(rng *rand.Rand, from *limit.Settings) limit.Settings {
	most := spread(rng, 1, 30)
	switch rng.IntN(8) {
	case 0:
		most = 0
	case 1:
		most = spread(rng, 1, 9e15)
	case 2:
		most = limit.MaxNumber
	}
	for {
		var s limit.Settings
		var err error
		if from == nil && rng.IntN(2) == 0 || from != nil && from.Algorithm == limit.SlidingWindowLogAlgorithm {
			window := spread(rng, 1, 1e14)
			if from != nil {
				window = from.Window.Micros
			}
			s, err = limit.NewSlidingWindowLog(most, window)
		} else {
			var rate limit.ParsedRate
			rate, err = limit.ParseRate(fmt.Sprintf("%d/%dus", spread(rng, 1, 9e7), spread(rng, 1, 9e7)))
			if err == nil {
				s, err = limit.NewLeakyBucketLog(rate.Rate, most)
			}
		}
		if err == nil {
			return s
		}
		most = spread(rng, 1, 1e6) // it was too slow
	}
}

// logTrace is a random trace over one key: the arithmetic beside the ledger.
type logTrace struct {
	t        *testing.T
	rng      *rand.Rand
	settings limit.Settings
	state    limit.State
	ledger   logLedger
	tickets  []limit.Payment // what may still be settled
	ids      int
	now      int64
	wait     int64
}

func newLogTrace(t *testing.T, seed uint64) *logTrace {
	rng := rand.New(rand.NewPCG(seed, 20))
	return &logTrace{t: t, rng: rng, settings: randomLog(rng, nil), now: vectorStart}
}

// unit is about the time in which the limit is as if unused again.
func (r *logTrace) unit() float64 { return max(2, float64(r.settings.Span().Microseconds())) }

func (r *logTrace) pause(steps bool) {
	switch r.rng.IntN(8) {
	case 0, 1:
		r.now += spread(r.rng, 1, r.unit())
	case 2:
		r.now += spread(r.rng, 1, 10*r.unit())
	case 3:
		r.now += max(0, r.wait)
	case 4:
		r.now += max(0, r.wait-1)
	case 5:
		if steps {
			r.now -= spread(r.rng, 1, 2*r.unit())
		}
	}
	r.now = min(max(r.now, 1e15), 4e15)
	r.wait = 0
}

func (r *logTrace) cost() int64 {
	most := r.settings.Capacity()
	switch r.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return most
	case 2:
		return min(limit.MaxNumber, most+spread(r.rng, 1, 10))
	default:
		return min(most, spread(r.rng, 1, max(2, float64(most)/float64(1+r.rng.IntN(8)))))
	}
}

// ask decides once, as a store does, and compares all that there is to know.
func (r *logTrace) ask(cost int64) (passed bool) {
	s, next := &r.settings, r.state
	wait, moved := s.Decide(&next, r.now, cost)
	wantMoved := r.ledger.back(s, r.now)
	if want := r.ledger.wait(s, r.now, cost); wait != want || moved != wantMoved {
		r.t.Fatalf("%+v: cost %d at %d: wait %d, moved %t; want %d, %t", *s, cost, r.now, wait, moved, want, wantMoved)
	}
	if wait == 0 && cost > 0 {
		r.ids++
		id := fmt.Sprint("d", r.ids)
		s.Charge(&next, r.now, cost, id)
		r.ledger.charge(s, r.now, cost, id)
		r.tickets = append(r.tickets, limit.Payment{Charged: cost, Mark: s.Mark(&next, r.now), ID: id})
	} else if moved {
		s.Charge(&next, r.now, 0, "")
	}
	if moved || wait == 0 && cost > 0 {
		r.state = next
	}
	r.compare(&next)
	r.wait = wait
	return wait == 0
}

// settle settles some ticket, or one that nothing was charged for.
func (r *logTrace) settle() {
	p := limit.Payment{ID: "free"}
	if n := len(r.tickets); n > 0 && r.rng.IntN(6) > 0 {
		i := max(0, n-1-r.rng.IntN(min(n, 12)))
		p = r.tickets[i]
		r.tickets = slices.Delete(r.tickets, i, i+1)
	}
	switch r.rng.IntN(6) {
	case 0:
	case 1:
		p.Actual = p.Charged
	case 2, 3:
		p.Actual = r.rng.Int64N(p.Charged + 1)
	case 4:
		p.Actual = min(limit.MaxNumber, p.Charged+spread(r.rng, 1, max(2, float64(r.settings.Capacity()))))
	case 5:
		p.Actual = limit.MaxNumber - r.rng.Int64N(3)
	}
	next := r.state
	changed, ok := r.settings.Settle(&next, r.now, &p)
	wantChanged, wantOK := r.ledger.settle(&r.settings, r.now, &p)
	if changed != wantChanged || ok != wantOK {
		r.t.Fatalf("%+v: %+v at %d: changed %t, ok %t; want %t, %t", r.settings, p, r.now, changed, ok, wantChanged, wantOK)
	}
	if !ok {
		next = r.state
		_, moved := r.settings.Decide(&next, r.now, 0)
		changed = moved // as the ledger has
	}
	if changed {
		r.state = next
	}
	r.compare(&next)
}

func (r *logTrace) compare(s *limit.State) {
	left, reset := r.settings.Report(s, r.now)
	wantLeft, wantReset := r.settings.Capacity()-r.ledger.used(r.now), r.ledger.reset(r.now)
	if left != wantLeft || reset != wantReset {
		r.t.Fatalf("%+v at %d: left %d, reset %d; want %d, %d; state %+v", r.settings, r.now, left, reset, wantLeft, wantReset, s.Entries)
	}
	if reset > 0 && r.settings.Until(s) != r.now+reset {
		r.t.Fatalf("%+v at %d: until %d, but reset after %d", r.settings, r.now, r.settings.Until(s), reset)
	}
	if got, want := r.settings.List(s, r.now), r.ledger.list(&r.settings, r.now); !slices.Equal(got, want) {
		r.t.Fatalf("%+v at %d: listed %+v, want %+v", r.settings, r.now, got, want)
	}
	if n := len(s.Entries); n > 0 && s.Entries[n-1].Sum > limit.MaxNumber {
		r.t.Fatalf("%+v: a sum of %d", r.settings, s.Entries[n-1].Sum)
	}
}

// TestLogsAgreeWithALedger compares waits, levels, resets, lists and settlements with the ledger, over
// random settings that change on the way, pauses from nothing to ten times a window, and clock steps.
func TestLogsAgreeWithALedger(t *testing.T) {
	for seed := range traces(2000) {
		r := newLogTrace(t, uint64(seed))
		for range 150 {
			r.pause(true)
			if r.rng.IntN(30) == 0 {
				r.settings = randomLog(r.rng, &r.settings)
			}
			if r.rng.IntN(5) == 0 {
				r.settle()
			} else {
				r.ask(r.cost())
			}
		}
	}
}

// TestLogRetryAfterIsTight: waiting exactly as told passes, a microsecond less does not.
func TestLogRetryAfterIsTight(t *testing.T) {
	denials := 0
	for seed := range traces(2000) {
		r := newLogTrace(t, uint64(seed))
		for range 60 {
			r.pause(false)
			cost := r.cost()
			if r.ask(cost) || r.wait == limit.Never {
				r.wait = 0
				continue
			}
			denials++
			then, before := r.state, r.state
			if wait, _ := r.settings.Decide(&then, r.now+r.wait, cost); wait != 0 {
				t.Fatalf("%+v, cost %d: after the wait of %dµs another %dµs", r.settings, cost, r.wait, wait)
			}
			if wait, _ := r.settings.Decide(&before, r.now+r.wait-1, cost); wait != 1 {
				t.Fatalf("%+v, cost %d: 1µs before the end of the wait of %dµs it is %dµs", r.settings, cost, r.wait, wait)
			}
		}
	}
	if denials < 100 {
		t.Errorf("only %d denials: the trace tests nothing", denials)
	}
}

// TestLogsAdmitTheirBound: in no window of its length does a sliding window admit more than its limit; a
// leaky bucket admits at most its capacity and what drains meanwhile.
func TestLogsAdmitTheirBound(t *testing.T) {
	type grant struct{ at, cost int64 }
	for seed := range traces(1000) {
		r := newLogTrace(t, uint64(seed))
		var grants []grant
		for range 80 {
			r.pause(false)
			if cost := r.cost(); r.ask(cost) && cost > 0 {
				grants = append(grants, grant{r.now, cost})
			}
		}
		for i := range grants {
			sum := new(big.Int)
			for _, g := range grants[i:] {
				sum.Add(sum, big.NewInt(g.cost))
				span := g.at - grants[i].at
				bound := ratOf(r.settings.Capacity())
				if r.settings.Algorithm == limit.LeakyBucketLogAlgorithm {
					bound.Add(bound, new(big.Rat).Mul(ratOf(span), perMicro(&r.settings.Bucket)))
				} else if span >= r.settings.Window.Micros {
					break
				}
				if new(big.Rat).SetInt(sum).Cmp(bound) > 0 {
					t.Fatalf("seed %d: %+v admitted %d in %dµs, more than %s", seed, r.settings, sum, span, bound.FloatString(3))
				}
			}
		}
	}
}

// TestLogsLeaveCopiesAlone: whatever is done with a copy of a state, the state reads as before.
func TestLogsLeaveCopiesAlone(t *testing.T) {
	for seed := range traces(1000) {
		r := newLogTrace(t, uint64(seed))
		for range 60 {
			r.pause(true)
			before := slices.Clone(r.state.Entries)
			kept := r.state
			if r.rng.IntN(3) == 0 {
				r.settle()
			} else {
				r.ask(r.cost())
			}
			if !slices.Equal(kept.Entries, before) {
				t.Fatalf("seed %d: %+v: a copy changed from %+v to %+v", seed, r.settings, before, kept.Entries)
			}
		}
	}
}

// TestLogsDropAThousandAtOnce: a charge takes at most 1,000 entries that no longer count out of the log.
func TestLogsDropAThousandAtOnce(t *testing.T) {
	window, err := limit.NewSlidingWindowLog(10_000, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: 100}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []limit.Settings{window, bucket} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			var st limit.State
			for range 2500 {
				s.Charge(&st, vectorStart, 1, "")
			}
			later := int64(vectorStart + 10_000_000)
			for i, want := range []int{1501, 502, 3, 4} {
				if wait, _ := s.Decide(&st, later, 1); wait != 0 {
					t.Fatalf("a wait of %d", wait)
				}
				s.Charge(&st, later, 1, "")
				if left, _ := s.Report(&st, later); len(st.Entries) != want || left != 10_000-int64(i+1) {
					t.Errorf("after %d charges %d entries and %d left, want %d and %d", i+1, len(st.Entries), left, want, 10_000-i-1)
				}
			}
		})
	}
}
