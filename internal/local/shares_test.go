package local_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestSharesTogetherKeepTheLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	worlds := 20_000
	if testing.Short() {
		worlds = 700
	}
	admitted := map[limit.Algorithm]int{}
	for range worlds {
		synctest.Test(t, func(t *testing.T) { cutOffAtRandom(t, rng, admitted) })
	}
	for _, a := range limit.Algorithms() {
		if admitted[a] < worlds/2 {
			t.Errorf("%s: %d grants: the test sees too little", a, admitted[a])
		}
	}
}

// randomShared draws settings of any algorithm.
func randomShared(rng *rand.Rand) limit.Settings {
	if rng.IntN(8) > 0 {
		return randomSettings(rng, 1000)
	}
	s, err := limit.NewConcurrency(spread(rng, 1, 100), spread(rng, 1000, 3e12))
	if err != nil {
		panic(err)
	}
	return s
}

// outage is nodes that are cut off, and what they admitted since.
type outage struct {
	*cutOff
	cut     time.Time
	largest int64 // cost
	left    int64 // at the cut, as every node knows, until
	until   time.Time
	had     []had
}

type had struct {
	at   time.Time
	cost int64
}

// cutOffAtRandom cuts nodes off for a while, some of them twice or more, and checks after every
// grant that all together have had no more than they may.
func cutOffAtRandom(t *testing.T, rng *rand.Rand, admitted map[limit.Algorithm]int) {
	o := outage{cutOff: newCutOffOf(t, randomShared(rng), 1+rng.IntN(7))}
	s := &o.limit.Settings
	most := s.Capacity()
	o.largest = spread(rng, 1, float64(most)+1)
	if s.Algorithm == limit.ConcurrencyAlgorithm {
		o.largest = 1
	}
	span := float64(s.Span())
	if s.Algorithm == limit.ConcurrencyAlgorithm {
		span = float64(s.Slots.TTL * 1000)
	}
	o.left = most
	switch rng.IntN(3) {
	case 0: // nothing is known
	case 1: // some is used, and every node knows
		s.Bucket.Initial = s.Bucket.Burst
		for range 1 + rng.IntN(3) {
			o.shared(min(rng.Int64N(most+1), o.slots()), o.nodes...)
			time.Sleep(time.Duration(spread(rng, 1, max(10, span/3))))
		}
		o.shared(0, o.nodes...)
		known, _ := o.nodes[0].tier.Known(time.Now(), o.charge(0))
		o.left, o.until = known.Left, time.Now().Add(time.Duration(known.Reset-1)*time.Microsecond)
	case 2: // some know what was left, some what was left long before
		for range 5 {
			o.shared(min(spread(rng, 1, float64(most)+1), o.slots()), o.nodes[rng.IntN(len(o.nodes))])
			time.Sleep(time.Duration(spread(rng, 1, max(10, span))))
		}
	}
	o.cut = time.Now()
	for range 150 {
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(min(spread(rng, 1, max(10, span/5)), 1e15)))
		}
		if rng.IntN(40) == 0 { // the store is back for a moment: it knows of nothing that was had meanwhile
			o.shared(0, o.nodes[rng.IntN(len(o.nodes))])
		}
		cost := min(most, 1+rng.Int64N(o.largest))
		if rng.IntN(4) == 0 {
			cost = min(most, o.largest)
		}
		if o.take(rng.IntN(len(o.nodes)), cost).Allowed {
			admitted[s.Algorithm]++
			o.had = append(o.had, had{time.Now(), cost})
			o.check()
		}
	}
}

// slots is what one question may ask for at most.
func (o *outage) slots() int64 {
	if o.limit.Settings.Algorithm == limit.ConcurrencyAlgorithm {
		return 1
	}
	return o.limit.Settings.Capacity()
}

// since sums what was had after t, where a store that cuts times to a µs sees it so.
func (o *outage) since(t time.Time) (sum float64) {
	t = t.Add(time.Microsecond)
	for i := range o.had {
		if o.had[i].at.After(t) {
			sum += float64(o.had[i].cost)
		}
	}
	return sum
}

// check compares what was had with the limit and the largest cost of each node. In a bucket and a
// leaky log what flowed back since the cut comes on top; a sliding window counts over its span, an
// approximate one admits up to twice as much over it; a fixed one counts from its beginning, and nodes
// begin theirs apart: so many may have begun since the cut.
func (o *outage) check() {
	o.t.Helper()
	s, now := &o.limit.Settings, time.Now()
	all, extra := o.since(time.Time{}), float64(int64(len(o.nodes))*o.largest)
	whole := float64(s.Capacity())
	if now.Before(o.until) && s.Bucket.Burst == 0 && !(s.Algorithm == limit.SlidingWindowAlgorithm && now.Sub(o.cut) >= s.Span()) {
		o.most("until what was known is over", all, float64(o.left)+extra)
	}
	switch s.Algorithm {
	case limit.FixedWindowAlgorithm:
		if s.Window.Period != 0 {
			begins := time.UnixMicro(s.Window.Boundaries(now.UnixMicro())[1])
			o.most("in a period", o.since(begins), whole+extra)
			return
		}
		o.most("in windows", all, (whole+extra)*float64(2+now.Sub(o.cut)/s.Span()))
	case limit.SlidingWindowLogAlgorithm:
		o.most("in a window", o.since(now.Add(-s.Span())), whole+extra)
	case limit.SlidingWindowAlgorithm:
		o.most("in a window", o.since(now.Add(-s.Span())), 2*whole+extra)
	case limit.ConcurrencyAlgorithm:
		o.most("at once", o.since(now.Add(-time.Duration(s.Slots.TTL)*time.Microsecond)), whole+extra)
	case limit.LeakyBucketLogAlgorithm:
		o.most("in all", all, whole+gainOf(s, now.Sub(o.cut)+time.Microsecond)+extra)
	default:
		o.most("in all", all, float64(o.left)+gainOf(s, now.Sub(o.cut)+time.Microsecond)+extra)
	}
}

func (o *outage) most(when string, got, want float64) {
	o.t.Helper()
	if got > want*(1+1e-12) {
		o.t.Fatalf("%+v: %d nodes with costs up to %d had %.0f %s after %v, want at most %.1f", o.limit.Settings, len(o.nodes), o.largest, got, when, time.Since(o.cut), want)
	}
}

// hundredAnHour returns settings of 100 in an hour of every algorithm that counts over a span, by name.
func hundredAnHour(t *testing.T) map[string]limit.Settings {
	const hour = 3_600_000_000
	return map[string]limit.Settings{
		"fixed_window":       must(t)(limit.NewFixedWindow(100, hour)),
		"a day":              must(t)(limit.NewCalendarWindow(100, limit.Day, time.UTC)),
		"sliding_window":     must(t)(limit.NewSlidingWindow(100, hour)),
		"sliding_window_log": must(t)(limit.NewSlidingWindowLog(100, hour)),
		"leaky_bucket_log":   must(t)(limit.NewLeakyBucketLog(limit.Rate{Tokens: 100, Micros: hour}, 100)),
		"concurrency":        must(t)(limit.NewConcurrency(100, hour)),
	}
}

// forHourly runs a test for each of them with 3 nodes, which have 33 each.
func forHourly(t *testing.T, test func(*testing.T, *cutOff)) {
	for name, s := range hundredAnHour(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newCutOffOf(t, s, 3)) })
		})
	}
}

// use asks the shared limit for n of 1, and all nodes hear of it.
func (c *cutOff) use(n int) {
	for range n {
		c.shared(1, c.nodes...)
	}
}

func TestShareOfAWindowBegins(t *testing.T) {
	for _, tt := range []struct{ used, want int }{{-1, 33}, {0, 33}, {50, 16}, {98, 0}, {100, 0}} {
		t.Run(fmt.Sprint(tt.used), func(t *testing.T) {
			forHourly(t, func(t *testing.T, c *cutOff) {
				c.use(tt.used)
				if tt.used == 0 {
					c.shared(0, c.nodes...)
				}
				for node := range c.nodes {
					if v := c.want(node, 1, tt.want); v.Remaining != 0 || v.RetryAfter <= 0 || v.ResetAfter < v.RetryAfter {
						t.Errorf("%+v", v)
					}
				}
			})
		})
	}
}

// TestShareStaysUntilTheReset: until the limit is as if unused, as an answer said, a share has its part
// of what that left, and not more.
func TestShareStaysUntilTheReset(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		c.use(70)
		known, _ := c.nodes[0].tier.Known(time.Now(), c.charge(0))
		time.Sleep(time.Duration(known.Reset)*time.Microsecond - time.Minute)
		c.want(0, 1, 10)
		time.Sleep(time.Minute - time.Microsecond)
		c.want(1, 1, 10)
		time.Sleep(time.Microsecond)
		c.want(2, 1, 33)
		if c.limit.Settings.Algorithm == limit.FixedWindowAlgorithm {
			c.want(0, 1, 33)
			c.want(1, 1, 33)
		}
	})
}

func TestShareOfAWindowAcrossOutages(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		c.want(0, 1, 33)
		time.Sleep(time.Minute)
		// The store is back and away again: what was taken stays taken, whatever it had.
		c.shared(1, c.nodes...)
		c.want(0, 1, 0)
		// Another node used little; what is newly known to be left is less.
		for range 5 {
			c.take(1, 1)
		}
		c.use(60)
		c.want(1, 1, 13)
		// Taken since that answer: it does not count again.
		time.Sleep(time.Second)
		c.want(1, 1, 0)
		// An answer that leaves more than the share holds raises nothing.
		c.use(0)
		for range 10 {
			c.take(2, 1)
		}
		c.shared(0, c.nodes[2])
		c.want(2, 1, 3)
	})
}

// TestWindowShareLastsUntilTheKnownEnd: a share's own window that ends before the shared one must not
// let what is left until then be had twice.
func TestWindowShareLastsUntilTheKnownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, hundredAnHour(t)["fixed_window"], 3)
		c.take(0, 1) // its window ends at 60min
		time.Sleep(55 * time.Minute)
		c.use(1) // the shared one at 115min
		c.want(0, 1, 32)
		time.Sleep(10 * time.Minute)
		c.want(0, 1, 0)
		time.Sleep(50*time.Minute - time.Microsecond)
		c.want(0, 1, 0)
		time.Sleep(time.Microsecond)
		c.want(0, 1, 33)
	})
}

func TestShareOfACalendarPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, must(t)(limit.NewCalendarWindow(100, limit.Day, mustZone("Europe/Paris"))), 3)
		zone := c.limit.Settings.Window.Zone
		for day := range 3 { // whatever was known or taken, each civil day begins at its own midnight
			now := time.Now().In(zone)
			time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)) - time.Second)
			if day == 0 {
				c.want(0, 1, 33)
				c.shared(40, c.nodes[1])
				if v := c.want(1, 1, 20); v.RetryAfter != time.Second {
					t.Errorf("retry after %v, want 1s", v.RetryAfter)
				}
			}
			c.want(0, 1, 0)
			c.want(1, 1, 0)
			time.Sleep(time.Second)
			c.want(0, 1, 33)
			c.want(1, 1, 33)
		}
	})
}

func TestCostAboveTheShareOfAWindow(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		if c.limit.Settings.Algorithm == limit.ConcurrencyAlgorithm {
			return // one slot whatever the cost
		}
		if v := c.take(0, 100); !v.Allowed || v.Remaining != -67 {
			t.Errorf("a cost of the whole limit on a full share: %+v, want -67 left", v)
		}
		v := c.want(0, 100, 0)
		if v.Never || v.RetryAfter <= 0 {
			t.Errorf("%+v, want a retry", v)
		}
		c.want(0, 1, 0)
		time.Sleep(v.RetryAfter)
		c.want(0, 100, 1)
		c.take(1, 1)
		if v := c.take(1, 34); v.Allowed {
			t.Errorf("a cost above a share that is in use: %+v", v)
		}
	})
}

func TestShareOfFewSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, must(t)(limit.NewConcurrency(2, 60_000_000)), 3)
		v := c.want(0, 1, 1) // none each, and then the debt
		if v.RetryAfter != time.Minute {
			t.Errorf("retry after %v, want 1m", v.RetryAfter)
		}
		time.Sleep(time.Minute)
		c.want(0, 1, 1)
	})
}

// TestAnswerIsHeardOnce: when what was taken earlier no longer counts, the share has it again, although
// the newest answer, which was given before that, left less.
func TestAnswerIsHeardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, hundredAnHour(t)["sliding_window_log"], 3)
		c.take(0, 10)
		time.Sleep(50 * time.Minute)
		c.use(70)
		c.want(0, 11, 0)
		time.Sleep(10 * time.Minute)
		c.want(0, 1, 20)
	})
}

// TestShareOfABucketThatBeganEmpty begins with its part of what the bucket has by now.
func TestShareOfABucketThatBeganEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1_000_000}, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := newCutOff(t, b, 4)
		c.shared(1, c.nodes...) // denied: it begins to fill
		time.Sleep(time.Minute)
		c.want(0, 1, 15)
	})
}
