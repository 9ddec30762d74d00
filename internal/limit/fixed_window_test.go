package limit_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// ledger is one key of a window, kept another way: charge by charge, each in the window that it was
// made in. Reading a ledger at a time gives a new one.
type ledger interface {
	at(w *limit.Window, now int64) (next ledger, moved bool)
	fits(w *limit.Window, at, cost int64) bool // at the ledger's own time, or later if nothing is charged
	left(w *limit.Window, now int64) int64
	reset(w *limit.Window, now int64) int64
	charge(w *limit.Window, now int64, ticket int, cost int64)
	settle(w *limit.Window, now int64, ticket int, charged, actual int64) (changed bool)
	absent() bool
}

// costs are charges by the number of their ticket.
type costs map[int]int64

func (c costs) sum() (sum int64) {
	for _, cost := range c {
		sum += cost
	}
	return sum
}

// settle changes what the ticket has charged here, if it has.
func (c costs) settle(ticket int, actual int64) (changed bool) {
	cost, here := c[ticket]
	if here {
		c[ticket] = actual
	}
	return here && cost != actual
}

// fixedLedger is the ledger of a fixed window.
type fixedLedger struct {
	end int64 // 0: absent
	all costs
}

func latestEnd(w *limit.Window, now int64) int64 {
	if w.Period != 0 {
		return w.Boundaries(now)[2]
	}
	return now + w.Micros
}

func (l *fixedLedger) at(w *limit.Window, now int64) (ledger, bool) {
	if now >= l.end {
		return &fixedLedger{all: costs{}}, false
	}
	end := min(l.end, latestEnd(w, now))
	return &fixedLedger{end: end, all: maps.Clone(l.all)}, end < l.end
}

func (l *fixedLedger) fits(w *limit.Window, at, cost int64) bool {
	return at >= l.end || l.all.sum()+cost <= w.Limit
}

func (l *fixedLedger) left(w *limit.Window, _ int64) int64 { return w.Limit - l.all.sum() }

func (l *fixedLedger) reset(_ *limit.Window, now int64) int64 { return max(0, l.end-now) }

func (l *fixedLedger) charge(w *limit.Window, now int64, ticket int, cost int64) {
	if l.end == 0 {
		l.end = latestEnd(w, now)
	}
	l.all[ticket] = cost
}

func (l *fixedLedger) settle(w *limit.Window, now int64, ticket int, charged, actual int64) bool {
	if charged == 0 && actual > 0 {
		l.charge(w, now, ticket, actual)
		return true
	}
	return l.all.settle(ticket, actual)
}

func (l *fixedLedger) absent() bool { return l.end == 0 }

// windowTrace asks and settles at random, and compares every answer with a ledger's.
type windowTrace struct {
	t       *testing.T
	rng     *rand.Rand
	set     limit.Settings
	change  func() limit.Settings // the same window with another limit
	state   limit.State
	ledger  ledger
	now     int64
	wait    int64
	tickets []windowTicket // not settled yet
}

type windowTicket struct {
	number        int
	charged, mark int64
}

func (r *windowTrace) pause() {
	switch w := &r.set.Window; r.rng.IntN(12) {
	case 0, 1:
		r.now += spread(r.rng, 1, 1e7)
	case 2:
		r.now += spread(r.rng, 1, 1e13)
	case 3, 4:
		r.now += r.wait
	case 5:
		r.now += max(0, r.wait-1)
	case 6:
		r.now -= spread(r.rng, 1, 1e9)
	case 7, 8:
		r.now += spread(r.rng, 1, 1+float64(2*max(w.Micros, 1e5)))
	}
	r.wait = 0
}

func (r *windowTrace) cost() int64 {
	switch r.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return r.set.Window.Limit
	case 2:
		return r.set.Window.Limit + r.rng.Int64N(5)
	case 3:
		left := r.ledger.left(&r.set.Window, r.now)
		return max(0, left+r.rng.Int64N(3)-1)
	default:
		return spread(r.rng, 1, float64(max(2, r.set.Window.Limit)))
	}
}

// ask decides a cost, and charges it when it passes.
func (r *windowTrace) ask(step int) {
	w, cost := &r.set.Window, r.cost()
	next := r.state
	wait, moved := r.set.Decide(&next, r.now, cost)
	own, ownMoved := r.ledger.at(w, r.now)
	if want := waitIn(own, w, r.now, cost); wait != want || moved != ownMoved {
		r.t.Fatalf("step %d, cost %d at %d of %+v: got a wait of %d, moved %t; want %d, %t\nstate %+v",
			step, cost, r.now, *w, wait, moved, want, ownMoved, r.state.Window)
	}
	r.wait = max(0, wait)
	if wait != 0 {
		cost = 0
	}
	if cost > 0 {
		r.forget(own)
		own.charge(w, r.now, step, cost)
	}
	if cost > 0 || moved {
		r.set.Charge(&next, r.now, cost, "")
		r.state, r.ledger = next, own
	}
	if wait == 0 && r.rng.IntN(2) == 0 {
		ticket := windowTicket{number: step, charged: cost}
		if cost > 0 {
			ticket.mark = r.set.Mark(&next, r.now)
		}
		r.tickets = append(r.tickets, ticket)
	}
	r.compare(step, &next, own)
}

// forget drops the tickets of an earlier window that would have the name of the one that begins now: the
// clock was set back and has come to the same microsecond again.
func (r *windowTrace) forget(own ledger) {
	if own.absent() {
		r.tickets = slices.DeleteFunc(r.tickets, func(t windowTicket) bool {
			return t.mark == r.now || t.mark == r.now-r.set.Window.Micros
		})
	}
}

// settle settles one of the tickets.
func (r *windowTrace) settle(step int) {
	if len(r.tickets) == 0 {
		return
	}
	i := r.rng.IntN(len(r.tickets))
	t, w := r.tickets[i], &r.set.Window
	r.tickets = append(r.tickets[:i], r.tickets[i+1:]...)
	actual := []int64{0, t.charged, t.charged / 2, t.charged + 1, t.charged + w.Limit, 3}[r.rng.IntN(6)]
	next := r.state
	changed, ok := r.set.Settle(&next, r.now, &limit.Payment{Charged: t.charged, Actual: actual, Mark: t.mark})
	own, moved := r.ledger.at(w, r.now)
	wasAbsent := own.absent()
	if t.charged == 0 && actual > 0 {
		r.forget(own)
	}
	want := own.settle(w, r.now, t.number, t.charged, actual) || moved
	if !ok || changed != want || changed && wasAbsent && t.charged > 0 {
		r.t.Fatalf("step %d: settle %+v with %d: got %t, %t; want %t", step, t, actual, changed, ok, want)
	}
	if changed {
		r.state, r.ledger = next, own
	}
	r.compare(step, &next, own)
}

func (r *windowTrace) compare(step int, s *limit.State, own ledger) {
	w := &r.set.Window
	left, reset := r.set.Report(s, r.now)
	if wantLeft, wantReset := own.left(w, r.now), own.reset(w, r.now); left != wantLeft || reset != wantReset || left > w.Limit || reset < 0 {
		r.t.Fatalf("step %d at %d of %+v: got %d left, reset %d; want %d, %d\nstate %+v", step, r.now, *w, left, reset, wantLeft, wantReset, s.Window)
	}
	if s.Window.Count < 0 || s.Window.Previous < 0 || own.absent() != (s.Window.Serial == 0) {
		r.t.Fatalf("step %d: state %+v", step, s.Window)
	}
	if until := r.set.Until(&r.state); r.state.Window.Serial != 0 && until > r.now+2*latestSpan(w, r.now) && s == &r.state {
		r.t.Fatalf("step %d: until %d, more than two windows ahead of %d", step, until, r.now)
	}
}

func latestSpan(w *limit.Window, now int64) int64 { return latestEnd(w, now) - now }

// waitIn finds out by trying how long cost must wait.
func waitIn(l ledger, w *limit.Window, now, cost int64) int64 {
	if cost > w.Limit {
		return limit.Never
	}
	most := max(1, 2*l.reset(w, now))
	return int64(sort.Search(int(most), func(wait int) bool { return l.fits(w, now+int64(wait), cost) }))
}

func (r *windowTrace) run(steps int) {
	for step := range steps {
		r.pause()
		if r.rng.IntN(25) == 0 {
			r.set = r.change()
		}
		if r.rng.IntN(3) == 0 {
			r.settle(step)
		} else {
			r.ask(step)
		}
	}
}

func smallOrLarge(rng *rand.Rand) int64 {
	if rng.IntN(2) == 0 {
		return rng.Int64N(12)
	}
	return spread(rng, 1, 1e12)
}

// TestFixedWindowAgreesWithALedger compares decisions, waits, levels and resets with the ledger, over
// plain and calendar windows, changed limits, settlements, pauses and clock steps.
func TestFixedWindowAgreesWithALedger(t *testing.T) {
	for seed := range traces(1000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		span, period := spread(rng, 1, 1e12), limit.Period(rng.IntN(6))
		zone := zoneOf(t, zones[rng.IntN(len(zones))])
		change := func() limit.Settings {
			s, err := limit.NewFixedWindow(smallOrLarge(rng), span)
			if period >= limit.Day && period <= limit.Month {
				s, err = limit.NewCalendarWindow(smallOrLarge(rng), period, zone)
			}
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		r := windowTrace{t: t, rng: rng, set: change(), change: change, ledger: &fixedLedger{}, now: vectorStart}
		r.run(150)
	}
}

// TestSteadyTrafficBelowTheLimitPasses: 500 requests a second of 3,000 allowed, for a minute.
func TestSteadyTrafficBelowTheLimitPasses(t *testing.T) {
	fixed := made(t)(limit.NewFixedWindow(3000, 1_000_000))
	sliding := made(t)(limit.NewSlidingWindow(3000, 1_000_000))
	for _, set := range []limit.Settings{fixed, sliding} {
		var k key
		for n := range int64(30_000) {
			if v := k.ask(vectorStart+2000*n, &set, 0, 1); !v.Allowed {
				t.Fatalf("%s, request %d: %+v", set.Algorithm, n, v)
			}
		}
	}
}

// TestRefundsAfterTheWindow: what is given back after the window has ended makes no state and lets no
// more pass in the next one.
func TestRefundsAfterTheWindow(t *testing.T) {
	day := made(t)(limit.NewCalendarWindow(5, limit.Day, zoneOf(t, "Europe/Paris")))
	plain := made(t)(limit.NewFixedWindow(5, 1_000_000))
	sliding := made(t)(limit.NewSlidingWindow(5, 1_000_000))
	for _, set := range []limit.Settings{day, plain, sliding} {
		var s limit.State
		now := int64(vectorStart)
		set.Decide(&s, now, 5)
		set.Charge(&s, now, 5, "a")
		refund := limit.Payment{Charged: 1, Mark: set.Mark(&s, now)}
		now = set.Until(&s)
		for range 5 {
			gone := s
			if changed, ok := set.Settle(&gone, now, &refund); changed || !ok || gone.Window != (limit.WindowState{}) {
				t.Errorf("%s: after the window: changed %t, ok %t, state %+v", set.Algorithm, changed, ok, gone.Window)
			}
		}
		set.Decide(&s, now, 3)
		set.Charge(&s, now, 3, "b")
		if changed, ok := set.Settle(&s, now, &refund); changed || !ok || s.Window.Count != 3 {
			t.Errorf("%s: in the next window: changed %t, ok %t, state %+v", set.Algorithm, changed, ok, s.Window)
		}
	}
}

// TestWindowDebts: a settlement may leave a debt, which ends with its window, up to 2^53.
func TestWindowDebts(t *testing.T) {
	plain := made(t)(limit.NewFixedWindow(5, 1_000_000))
	sliding := made(t)(limit.NewSlidingWindow(5, 1_000_000))
	for _, set := range []limit.Settings{plain, sliding} {
		var s limit.State
		set.Decide(&s, vectorStart, 2)
		set.Charge(&s, vectorStart, 2, "a")
		mark := set.Mark(&s, vectorStart)
		too := s
		if _, ok := set.Settle(&too, vectorStart, &limit.Payment{Charged: 1, Actual: limit.MaxNumber, Mark: mark}); ok {
			t.Errorf("%s: a count above 2^53 was taken: %+v", set.Algorithm, too.Window)
		}
		most := s
		if _, ok := set.Settle(&most, vectorStart, &limit.Payment{Charged: 2, Actual: limit.MaxNumber, Mark: mark}); !ok || most.Window.Count != limit.MaxNumber {
			t.Errorf("%s: a count of 2^53 was refused: %+v", set.Algorithm, most.Window)
		}
		if left, _ := set.Report(&most, vectorStart); left != 5-limit.MaxNumber {
			t.Errorf("%s: got %d left", set.Algorithm, left)
		}
		if wait, _ := set.Decide(&most, vectorStart, 0); wait != 1_000_000 {
			t.Errorf("%s: a peek in debt: got a wait of %d, want the rest of the window", set.Algorithm, wait)
		}
		if wait, _ := set.Decide(&most, vectorStart+set.Until(&most), 5); wait != 0 {
			t.Errorf("%s: the debt outlived its windows: %d", set.Algorithm, wait)
		}
	}
}

// TestWindowShares: of a node's share, a cost above it passes when nothing is used, and leaves a debt.
func TestWindowShares(t *testing.T) {
	plain := made(t)(limit.NewFixedWindow(2, 1_000_000))
	sliding := made(t)(limit.NewSlidingWindow(2, 1_000_000))
	for _, whole := range []limit.Settings{plain, sliding} {
		for _, nodes := range []int64{1, 2, 3} {
			set := whole.Share(nodes)
			share := 2 / nodes
			var k key
			if v := k.ask(vectorStart, &set, 0, 10); !v.Allowed || v.Remaining != share-10 {
				t.Errorf("%s, %d nodes: a cost above the share: got %+v", set.Algorithm, nodes, v)
			}
			if v := k.ask(vectorStart+1, &set, 0, 10); v.Allowed || v.Never || v.RetryAfter == 0 {
				t.Errorf("%s, %d nodes: another: got %+v", set.Algorithm, nodes, v)
			}
		}
		set := whole.Share(2)
		var old key
		old.ask(vectorStart, &set, 0, 1)
		v := old.ask(vectorStart+1_500_000, &set, 0, 10)
		if sliding := set.Algorithm == limit.SlidingWindowAlgorithm; v.Allowed == sliding || sliding && v.RetryAfter != 500*time.Millisecond {
			t.Errorf("%s: a cost above the share while the window before counts: got %+v", set.Algorithm, v)
		}
		nothing := whole
		nothing.Window.Limit = 0
		set = nothing.Share(2)
		var k key
		if v := k.ask(vectorStart, &set, 0, 1); !v.Never {
			t.Errorf("%s: a share of nothing: got %+v", set.Algorithm, v)
		}
	}
}

// TestWindowSeeds: a seeded state has so much left, and no more than that until reset.
func TestWindowSeeds(t *testing.T) {
	day := made(t)(limit.NewCalendarWindow(10, limit.Day, zoneOf(t, "UTC")))
	plain := made(t)(limit.NewFixedWindow(10, 1_000_000))
	sliding := made(t)(limit.NewSlidingWindow(10, 1_000_000))
	for _, set := range []limit.Settings{day, plain, sliding} {
		for left, want := range map[int64]int64{10: 10, 11: 10, 4: 4, 0: 0, -3: -3, math.MinInt64 / 2: 10 - limit.MaxNumber} {
			s := set.Seed(vectorStart, left, 400_000)
			set.Decide(&s, vectorStart, 0)
			if got, _ := set.Report(&s, vectorStart); got != want {
				t.Errorf("%s: seeded with %d: got %d left, want %d", set.Algorithm, left, got, want)
			}
		}
		s := set.Seed(vectorStart, 0, 400_000)
		if wait, _ := set.Decide(&s, vectorStart, 1); wait < 400_000 {
			t.Errorf("%s: seeded with nothing left for 400 ms: got a wait of %d", set.Algorithm, wait)
		}
	}
}
