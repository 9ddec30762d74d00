package local_test

import (
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
