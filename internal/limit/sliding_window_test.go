package limit_test

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// slidingLedger is the ledger of a sliding window. Its arithmetic is in rational numbers of any size.
type slidingLedger struct {
	start             int64 // 0: absent
	current, previous costs
}

// after returns the ledger n windows later.
func (l *slidingLedger) after(w *limit.Window, n int64) *slidingLedger {
	next := &slidingLedger{start: l.start + n*w.Micros, current: maps.Clone(l.current), previous: maps.Clone(l.previous)}
	if n > 0 {
		next.current, next.previous = costs{}, maps.Clone(l.current)
	}
	if n > 1 || n == 1 && next.previous.sum() == 0 {
		return &slidingLedger{current: costs{}, previous: costs{}}
	}
	return next
}

func (l *slidingLedger) at(w *limit.Window, now int64) (ledger, bool) {
	switch {
	case l.start == 0:
		return l.after(w, 2), false
	case now < l.start:
		next := l.after(w, 0)
		next.start = now
		return next, true
	}
	return l.after(w, (now-l.start)/w.Micros), false
}

// used returns what counts at a time within the current window, not rounded.
func (l *slidingLedger) used(w *limit.Window, at int64) *big.Rat {
	covered := new(big.Rat).Sub(big.NewRat(1, 1), big.NewRat((at-l.start)/w.Unit, w.Units))
	used := ratOf(min(l.previous.sum(), w.Limit))
	return used.Add(used.Mul(used, covered), ratOf(l.current.sum()))
}

func (l *slidingLedger) fits(w *limit.Window, at, cost int64) bool {
	if l.start == 0 {
		return true
	}
	later := l.after(w, (at-l.start)/w.Micros)
	if later.start == 0 {
		return true
	}
	used := later.used(w, at)
	return later.current.sum()+cost <= w.Limit && used.Add(used, ratOf(cost)).Cmp(ratOf(w.Limit)) <= 0
}

func (l *slidingLedger) left(w *limit.Window, now int64) int64 {
	if l.start == 0 {
		return w.Limit
	}
	return floorOf(new(big.Rat).Sub(ratOf(w.Limit), l.used(w, max(now, l.start))))
}

func (l *slidingLedger) reset(w *limit.Window, now int64) int64 {
	switch {
	case l.current.sum() > 0:
		return l.start + 2*w.Micros - now
	case l.previous.sum() > 0:
		return l.start + w.Micros - now
	}
	return 0
}

func (l *slidingLedger) charge(_ *limit.Window, now int64, ticket int, cost int64) {
	if l.start == 0 {
		l.start = now
	}
	l.current[ticket] = cost
}

func (l *slidingLedger) settle(w *limit.Window, now int64, ticket int, charged, actual int64) bool {
	if charged == 0 && actual > 0 {
		l.charge(w, now, ticket, actual)
		return true
	}
	return l.current.settle(ticket, actual) || l.previous.settle(ticket, actual)
}

func (l *slidingLedger) absent() bool { return l.start == 0 }

// TestSlidingWindowAgreesWithALedger compares decisions, waits, levels and resets with the ledger, over
// windows from 1µs to months, changed limits, settlements, pauses and clock steps.
func TestSlidingWindowAgreesWithALedger(t *testing.T) {
	for seed := range traces(500) {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		span := spread(rng, 1, 1e13)
		change := func() limit.Settings {
			for {
				if s, err := limit.NewSlidingWindow(smallOrLarge(rng), span); err == nil {
					return s
				}
			}
		}
		r := windowTrace{t: t, rng: rng, set: change(), change: change, ledger: &slidingLedger{}, now: vectorStart}
		r.run(150)
	}
}

// TestSlidingWindowNeverLeavesTheIntegers: the largest numbers of the arithmetic, for the largest
// limits that every window takes.
func TestSlidingWindowNeverLeavesTheIntegers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for range traces(100_000) {
		number, span := spread(rng, 1, 1<<52-1), spread(rng, 1, 3e15)
		s, err := limit.NewSlidingWindow(number, span)
		if err != nil {
			continue
		}
		w := &s.Window
		product := new(big.Int).Mul(big.NewInt(w.Limit), big.NewInt(w.Units))
		if product.BitLen() > 52 || w.Units*w.Unit < span || (w.Units-1)*w.Unit >= span {
			t.Fatalf("%d in %dµs: %d units of %dµs", number, span, w.Units, w.Unit)
		}
	}
}

// sent is one charge that passed.
type sent struct{ at, cost int64 }

// worst returns the most that passed within any span.
func worst(all []sent, span int64) (most int64) {
	var sum int64
	first := 0
	for _, s := range all {
		for all[first].at <= s.at-span {
			sum -= all[first].cost
			first++
		}
		sum += s.cost
		most = max(most, sum)
	}
	return most
}

// traffic sends for 50 windows, asking for costs at times that next returns, and returns what passed.
func traffic(set *limit.Settings, next func(k *key, now int64) (pause, cost int64)) []sent {
	var k key
	var all []sent
	for now := int64(vectorStart); now < vectorStart+50*set.Window.Micros; {
		pause, cost := next(&k, now)
		now += pause
		if cost > 0 && k.ask(now, set, 0, cost).Allowed {
			all = append(all, sent{now, cost})
		}
	}
	return all
}

// TestSlidingWindowBound measures the most that passes within any window, on traffic of several kinds:
// always less than twice the limit.
func TestSlidingWindowBound(t *testing.T) {
	const span = 1_000_000
	for _, number := range []int64{1, 10, 100, 1000} {
		set := made(t)(limit.NewSlidingWindow(number, span))
		rng := rand.New(rand.NewPCG(uint64(number), 6))
		kinds := []struct {
			name string
			next func(k *key, now int64) (pause, cost int64)
		}{
			{"steady, above the limit", func(*key, int64) (int64, int64) { return span / number / 3, 1 }},
			{"random, above the limit", func(*key, int64) (int64, int64) {
				return 1 + int64(rng.ExpFloat64()*span/float64(number)/2), 1
			}},
			{"random bursts", func(*key, int64) (int64, int64) {
				if rng.IntN(10) == 0 {
					return spread(rng, 1000, 3*span), 1
				}
				return 1 + rng.Int64N(100), 1 + rng.Int64N(max(1, number/4))
			}},
			// One to begin the grid, the rest at the end of its window, then all that comes free.
			{"against the grid", func(k *key, now int64) (int64, int64) {
				w := k.state.Window
				switch {
				case w.Serial == 0 || now >= w.Start+2*span:
					return 1, 1
				case now < w.Start+span-1 && w.Previous == 0:
					return w.Start + span - 1 - now, number - 1
				}
				return max(1, span/number/4), 1
			}},
		}
		for _, kind := range kinds {
			all := traffic(&set, kind.next)
			most := worst(all, span)
			t.Logf("limit %d, %s: %d passed, %.3f × the limit within a window at most", number, kind.name, len(all), float64(most)/float64(number))
			if most >= 2*number || len(all) == 0 {
				t.Errorf("limit %d, %s: %d passed within a window", number, kind.name, most)
			}
		}
	}
}

// TestFixedWindowBound: at most twice the limit passes within any window, and that can be had; over
// windows that begin with their first charge never more than the limit.
func TestFixedWindowBound(t *testing.T) {
	const span, number = 1_000_000, 10
	set := made(t)(limit.NewFixedWindow(number, span))
	all := traffic(&set, func(k *key, now int64) (int64, int64) {
		if end := k.state.Window.End; now < end-1 {
			return end - 1 - now, number - 1
		}
		if k.state.Window.Count == number {
			return 1, number
		}
		return span, 1
	})
	if got := worst(all, span); got != 2*number-1 && got != 2*number {
		t.Errorf("got %d within a window, want about twice %d: %s", got, number, fmt.Sprint(all[:4]))
	}
}
