package local_test

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// must returns settings that are right.
func must(t testing.TB) func(limit.Settings, error) limit.Settings {
	return func(s limit.Settings, err error) limit.Settings {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// remembering returns settings of 10 in 600ms of every algorithm whose denials are remembered. Used up
// at once, all of them give nothing back for a while, and then some or all.
func remembering(t testing.TB) []limit.Settings {
	const span = 600_000
	return []limit.Settings{
		must(t)(limit.NewFixedWindow(10, span)),
		must(t)(limit.NewSlidingWindow(10, span)),
		must(t)(limit.NewSlidingWindowLog(10, span)),
		must(t)(limit.NewLeakyBucketLog(limit.Rate{Tokens: 10, Micros: span}, 10)),
	}
}

// each runs a test for all of them, in a world where the limit is used up and the tier does not know.
func each(t *testing.T, test func(*testing.T, *world)) {
	for _, s := range remembering(t) {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			w := newWorldOf(t, s)
			w.answer(0, 10)
			test(t, w)
		})
	}
}

// wait is how long the store would let cost wait at at.
func (w *world) wait(at time.Duration, cost int64) time.Duration {
	before := w.state
	v := w.answer(at, cost)
	w.state = before
	return v.RetryAfter
}

func (w *world) exact() bool { return w.limit.Settings.Algorithm == limit.FixedWindowAlgorithm }

// wantWait asks the tier about cost at at, and compares the wait that it tells.
func (w *world) wantWait(at time.Duration, cost int64, want time.Duration) {
	w.t.Helper()
	w.want(at, cost, true)
	if v, _ := deny(w.tier, w.base.Add(at), w.charge(cost)); v.RetryAfter != want || v.ResetAfter < want {
		w.t.Errorf("at %v: cost %d: %+v, want a retry after %v", at, cost, v, want)
	}
}

func TestDenialHoldsForItsWait(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const asked = 10 * time.Millisecond
		wait := w.wait(asked, 4)
		w.ask(asked, asked, 4)
		w.wantWait(asked, 4, wait)
		w.wantWait(asked+wait/2, 4, wait-wait/2)
		w.want(asked+wait*998/1000, 4, true)
		w.want(asked+wait-2*time.Microsecond, 4, false) // by a clock that runs a little faster it is over
		w.want(asked+wait, 4, false)
		if !w.answer(asked+wait, 4).Allowed {
			t.Error("the store denies after the wait")
		}
	})
}

func TestDenialAllowsForDrift(t *testing.T) {
	w := newWorldOf(t, must(t)(limit.NewFixedWindow(1, 900_450)))
	w.ask(0, 0, 1)
	w.ask(0, 0, 1)
	// Redis's clock runs 0.05 % fast: at 900ms here it is 900.45ms there.
	w.want(900*time.Millisecond, 1, false)
	w.want(899*time.Millisecond, 1, true)
}

func TestDenialAllowsForTimesCutToMicroseconds(t *testing.T) {
	w := newWorldOf(t, must(t)(limit.NewFixedWindow(1, 20)))
	w.base = w.base.Truncate(time.Microsecond)
	w.ask(0, 0, 1)
	w.ask(900*time.Nanosecond, 900*time.Nanosecond, 1)
	// 19.1µs later, but 20µs by a clock of whole µs.
	w.want(20*time.Microsecond, 1, false)
	w.want(18*time.Microsecond, 1, true)
}

func TestDenialIsDatedBeforeTheCall(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		// Decided at once, on its way back for 40ms.
		const asked, there = 10 * time.Millisecond, 50 * time.Millisecond
		passes := asked + w.wait(asked, 1)
		v := w.answer(asked, 1)
		w.tier.Observe(w.base.Add(asked), w.charge(1), &v)
		w.want(there, 1, true)
		w.want(passes, 1, false)
		w.want(passes+40*time.Millisecond, 1, false)
	})
}

func TestDenialIsForgottenAfterRecheck(t *testing.T) {
	for _, s := range []limit.Settings{
		must(t)(limit.NewFixedWindow(10, 3_600_000_000)),
		must(t)(limit.NewSlidingWindow(10, 3_600_000_000)),
		must(t)(limit.NewSlidingWindowLog(10, 3_600_000_000)),
		must(t)(limit.NewLeakyBucketLog(limit.Rate{Tokens: 10, Micros: 3_600_000_000}, 10)),
		must(t)(limit.NewCalendarWindow(10, limit.Month, time.UTC)),
	} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			w := newWorldOf(t, s)
			w.answer(0, 8)
			w.ask(0, 0, 5)
			w.want(time.Second, 5, true)
			w.want(time.Second+1, 5, false)
			// Neither an answer that allows less nor a peek's nor a denial of more makes it younger.
			w.ask(900*time.Millisecond, 900*time.Millisecond, 0)
			w.ask(900*time.Millisecond, 900*time.Millisecond, 6)
			w.want(time.Second, 5, true)
			w.want(time.Second+1, 5, false)
			w.ask(950*time.Millisecond, 950*time.Millisecond, 1)
			w.want(time.Second+1, 5, false)
			// Its own does.
			w.ask(1100*time.Millisecond, 1100*time.Millisecond, 5)
			w.want(2100*time.Millisecond, 5, true)
			w.want(2100*time.Millisecond+1, 5, false)
		})
	}
}

func TestSmallerCostsAsk(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.ask(0, 0, 4)
		w.want(time.Millisecond, 3, false) // also where nothing is left: the answer does not say for how long
		w.want(time.Millisecond, 0, false)
		w.want(time.Millisecond, 11, false) // what can never pass is not the tier's to deny
	})
}

// TestLargerCosts: a larger cost than the denied one is denied too, but its wait may be longer. It
// asks, unless the key is being asked about already.
func TestLargerCosts(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.answer(300*time.Millisecond, 3) // some have something to take again by then
		at := 310 * time.Millisecond
		w.ask(at, at, 8)
		reset := w.answer(at, 0).ResetAfter
		at += time.Millisecond
		if w.exact() {
			w.wantWait(at, 9, w.wait(at, 9))
		} else {
			w.want(at, 9, false)
		}
		w.tier.Join(w.base.Add(at), w.charge(9), 0)
		w.wantWait(at, 9, reset-time.Millisecond)
		w.wantWait(at, 8, w.wait(at, 8))
		if w.wait(at, 9) > reset-time.Millisecond {
			t.Error("the wait was too short")
		}
		w.tier.Leave(w.charge(9))
		w.want(at, 9, w.exact())
	})
}

// TestWhatIsTakenLater: after a denial, less than was denied is taken here. The denial is no less
// true, but the wait is longer than it said.
func TestWhatIsTakenLater(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.state = limit.State{}
		w.answer(0, 7)
		w.ask(0, 0, 5)
		before := w.wait(2*time.Millisecond, 5)
		w.ask(time.Millisecond, time.Millisecond, 2)
		w.wantTruth(2*time.Millisecond, 5)
		if !w.exact() && w.wait(2*time.Millisecond, 10) == before {
			t.Error("nothing was tested")
		}
		w.tier.Join(w.base, w.charge(1), 0) // in a flood it is denied all the same
		w.want(2*time.Millisecond, 5, true)
		v, _ := deny(w.tier, w.base.Add(2*time.Millisecond), w.charge(5))
		if v.RetryAfter < w.wait(2*time.Millisecond, 5) || v.Remaining != 1 {
			t.Errorf("%+v, want 1 left and a retry after %v or more", v, w.wait(2*time.Millisecond, 5))
		}
	})
}

// wantTruth fails the test unless the tier asks, or tells the exact wait.
func (w *world) wantTruth(at time.Duration, cost int64) {
	w.t.Helper()
	if v, denied := deny(w.tier, w.base.Add(at), w.charge(cost)); denied && v.RetryAfter != w.wait(at, cost) {
		w.t.Errorf("at %v: cost %d waits %v, want %v", at, cost, v.RetryAfter, w.wait(at, cost))
	}
}

func TestSmallestDenialIsKept(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.ask(0, 0, 2)
		w.ask(time.Millisecond, time.Millisecond, 9)
		w.want(2*time.Millisecond, 2, true)
		w.wantTruth(2*time.Millisecond, 9)
		w.ask(3*time.Millisecond, 3*time.Millisecond, 1)
		w.want(4*time.Millisecond, 1, true)
		// When it is over, the next one counts.
		w.gave = true
		w.state = limit.State{}
		w.answer(1100*time.Millisecond, 10)
		w.ask(1100*time.Millisecond, 1100*time.Millisecond, 9)
		w.want(1101*time.Millisecond, 9, true)
		w.want(1101*time.Millisecond, 1, false)
	})
}

// TestSlotsAreNotDenied: a slot may be freed at any time. What is free is known all the same.
func TestSlotsAreNotDenied(t *testing.T) {
	w := newWorldOf(t, must(t)(limit.NewConcurrency(2, 60_000_000)))
	w.ask(0, 0, 1)
	w.ask(time.Second, time.Second, 1)
	w.ask(2*time.Second, 2*time.Second, 1)
	w.want(2*time.Second, 1, false)
	w.tier.Join(w.base.Add(2*time.Second), w.charge(1), 0)
	w.want(2*time.Second, 1, false)
	if underWay, _ := w.tier.Join(w.base.Add(2*time.Second), w.charge(1), time.Second); underWay != nil {
		t.Error("a question waits for another one's slot")
	}
	for at, want := range map[time.Duration]int64{2 * time.Second: 0, 60 * time.Second: 0, 61 * time.Second: 2} {
		if known, ok := w.tier.Known(w.base.Add(at), w.charge(1)); known.Left != want || !ok {
			t.Errorf("at %v %+v is known, want %d free", at, known, want)
		}
	}
}

// TestKnown: what was left, until the limit is as if unused; a bucket refills meanwhile.
func TestKnown(t *testing.T) {
	leaky := bucketOf(even(t, 1, 100_000, 10))
	leaky.Algorithm = limit.LeakyBucketAlgorithm
	for _, s := range append(remembering(t), leaky) {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			w := newWorldOf(t, s)
			if _, ok := w.tier.Known(w.base, w.charge(1)); ok {
				t.Error("something is known of a key that was never asked about")
			}
			w.ask(0, 0, 6)
			reset := w.answer(0, 0).ResetAfter
			for _, tt := range []struct {
				at   time.Duration
				left int64
			}{{0, 4}, {99 * time.Millisecond, 4}, {reset - time.Microsecond, 4}, {reset, 10}, {reset + time.Hour, 10}} {
				if s.Algorithm == limit.LeakyBucketAlgorithm && tt.left == 4 {
					tt.left += int64(tt.at / (100 * time.Millisecond))
				}
				got, ok := w.tier.Known(w.base.Add(tt.at), w.charge(1))
				want := local.Knowledge{Left: tt.left, Reset: max(0, reset-tt.at).Microseconds(), AsOf: w.base, Answer: 1}
				if got.AsOf.Equal(w.base) {
					got.AsOf = w.base // its wall clock may be told from another reading
				}
				if got != want || !ok {
					t.Errorf("at %v: %+v, want %+v", tt.at, got, want)
				}
			}
			other := s
			other.Window.Limit++
			other.Bucket.Burst++
			if _, ok := w.tier.Known(w.base, &limit.Charge{Key: key, Hash: hashOf(key), Settings: &other}); ok {
				t.Error("something is known under other settings")
			}
		})
	}
}

// TestPeekAtABucketThatDoesNotExist: it begins to refill with the first request that costs something.
func TestPeekAtABucketThatDoesNotExist(t *testing.T) {
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1_000_000}, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, b)
	w.ask(0, 0, 0)
	w.want(500*time.Millisecond, 4, false)
	w.ask(500*time.Millisecond, 500*time.Millisecond, 4)
	w.wantWait(600*time.Millisecond, 4, 1900*time.Millisecond)
}

func TestRememberedDenialDoesNotAllocate(t *testing.T) {
	for _, s := range remembering(t) {
		tier := newTier(t, local.TierConfig{})
		l := &limit.Limit{Name: "l", Settings: s}
		c := limit.Charge{Limit: l, Settings: &l.Settings, Key: key, Hash: hashOf(key), Cost: 1}
		v := limit.Verdict{Limit: l, Settings: &l.Settings, RetryAfter: time.Minute, ResetAfter: time.Hour}
		tier.Observe(time.Now(), &c, &v)
		allocs := testing.AllocsPerRun(100, func() {
			if _, denied := deny(tier, time.Now(), &c); !denied {
				t.Error("not denied")
			}
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations for a local denial, want none", s.Algorithm, allocs)
		}
	}
}

// TestJoinExpectsWhatComesBack: a question waits for another one's answer only where that is likely to
// take the last of what is there by now.
func TestJoinExpectsWhatComesBack(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.ask(0, 0, 0)
		waits := func(at time.Duration) bool {
			c := w.charge(1)
			if underWay, _ := w.tier.Join(w.base.Add(at), c, time.Second); underWay != nil {
				t.Fatal("the first question waits")
			}
			defer w.tier.Leave(c)
			underWay, _ := w.tier.Join(w.base.Add(at), c, time.Second)
			if underWay == nil {
				w.tier.Leave(c)
			}
			return underWay != nil
		}
		reset := w.answer(0, 0).ResetAfter
		if !waits(time.Millisecond) || !waits(60*time.Millisecond) {
			t.Error("a question is asked beside another one although nothing is left for it")
		}
		if waits(300*time.Millisecond) != w.exact() { // by then some 5 are back, but in a fixed window none
			t.Error("a question waits although there is likely room for both")
		}
		if waits(reset) {
			t.Error("a question waits although all is back")
		}
	})
}
