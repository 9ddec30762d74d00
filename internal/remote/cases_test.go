package remote

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

const (
	oneSecond = 1_000_000
	oneHour   = 3600 * oneSecond
)

// newCases returns a world without limits: a test asks and settles in both stores, which must agree.
func newCases(t *testing.T) *world {
	t.Helper()
	conn, err := redistest.Dial(redistest.Start(t).Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newWorld(t, conn, 1)
}

func (w *world) must(s limit.Settings, err error) *limit.Limit {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return &limit.Limit{Name: s.Algorithm.String(), Unit: limit.RequestsUnit, Settings: s}
}

func (w *world) leaky(tokens, micros, burst int64) *limit.Limit {
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: tokens, Micros: micros}, burst, burst)
	return w.must(limit.Settings{Algorithm: limit.LeakyBucketAlgorithm, Bucket: bucket}, err)
}

// everyKind returns a limit of each algorithm of which most pass at once and nothing comes back for at
// least an hour.
func (w *world) everyKind(most int64) []*limit.Limit {
	rate := limit.Rate{Tokens: 1, Micros: oneHour}
	bucket, err := limit.NewTokenBucket(rate, most, most)
	all := []*limit.Limit{
		w.must(limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}, err),
		w.must(limit.Settings{Algorithm: limit.LeakyBucketAlgorithm, Bucket: bucket}, err),
		w.must(limit.NewLeakyBucketLog(rate, most)),
		w.must(limit.NewSlidingWindowLog(most, oneHour)),
		w.must(limit.NewSlidingWindow(most, oneHour)),
		w.must(limit.NewFixedWindow(most, oneHour)),
		w.must(limit.NewCalendarWindow(most, limit.Month, time.UTC)),
		w.must(limit.NewConcurrency(most, oneHour)),
	}
	all[6].Name = "calendar"
	return all
}

// question returns a request with an id, of which a ticket may be settled for an hour.
func (w *world) question(charges ...limit.Charge) limit.Request {
	w.ids++
	return limit.Request{Charges: charges, ID: fmt.Sprintf("ID%d", w.ids), Life: 100 * 24 * time.Hour}
}

func on(l *limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + "}", Cost: cost}
}

// take asks for the charges at once, and returns the decision and its ticket, nil when it is denied.
func (w *world) take(charges ...limit.Charge) (*limit.Decision, *limit.Ticket) {
	w.t.Helper()
	r := w.question(charges...)
	d := w.both(r)[0]
	return d, ticketOf(&r, d)
}

// passes fails the test unless the charges pass, or are denied.
func (w *world) passes(want bool, charges ...limit.Charge) *limit.Decision {
	w.t.Helper()
	d, _ := w.take(charges...)
	if d.Allowed != want {
		w.t.Errorf("%s asked for %d at %d: allowed %t, want %t: %+v", charges[0].Limit.Name, charges[0].Cost, w.now, d.Allowed, want, d.Verdicts)
	}
	return d
}

// left returns what is left of a limit.
func (w *world) left(l *limit.Limit) int64 {
	w.t.Helper()
	return w.both(limit.Request{Charges: []limit.Charge{on(l, 0)}})[0].Verdicts[0].Remaining
}

// finish settles a ticket: nothing was used in the end.
func (w *world) finish(t *limit.Ticket) bool {
	w.t.Helper()
	answer, err := w.settleBoth(&limit.Settlement{Act: limit.Finish, Ticket: t, Actual: make([]int64, len(t.Charges))})
	if err != nil {
		w.t.Fatalf("finish: %v", err)
	}
	return answer.Done
}

// TestLeakyBucketDrainsWhileAsked: in proportion to the time, not by whole intervals.
func TestLeakyBucketDrainsWhileAsked(t *testing.T) {
	w := newCases(t)
	l := w.leaky(10, 10*oneSecond, 10)
	for range 10 {
		w.passes(true, on(l, 1))
	}
	w.now += 5 * oneSecond
	w.passes(false, on(l, 6))
	w.passes(true, on(l, 5))
	w.passes(false, on(l, 1))
}

// TestLeakyBucketDrainsUnderSteadyTraffic: a request each second does not hold up the drain.
func TestLeakyBucketDrainsUnderSteadyTraffic(t *testing.T) {
	w := newCases(t)
	l := w.leaky(10, 30*oneSecond, 10)
	for i, want := range []int64{9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2} {
		if got := w.passes(true, on(l, 1)).Verdicts[0].Remaining; got != want {
			t.Errorf("after %d s: %d left, want %d", i, got, want)
		}
		w.now += oneSecond
	}
}

// TestSliverOfDrainAdmitsNothing: the whole cost must fit.
func TestSliverOfDrainAdmitsNothing(t *testing.T) {
	w := newCases(t)
	l := w.leaky(1, oneSecond, 2)
	w.passes(true, on(l, 2))
	w.now += oneSecond / 10
	w.passes(false, on(l, 1))
	w.now += oneSecond * 9 / 10
	w.passes(true, on(l, 1))
}

// TestLeakyBucketRefillsNoFasterThanItDrains: 3 at once and 3 a second, whatever expires meanwhile.
func TestLeakyBucketRefillsNoFasterThanItDrains(t *testing.T) {
	w := newCases(t)
	l := w.leaky(3, oneSecond, 3)
	admitted := 0
	for range 100 {
		if d, _ := w.take(on(l, 1)); d.Allowed {
			admitted++
		}
		w.now += oneSecond / 10
	}
	if admitted < 32 || admitted > 33 {
		t.Errorf("%d passed in 10 s, want 32 or 33", admitted)
	}
}

// TestExactlyTheLimitPasses: of every algorithm, at first and when all has come back.
func TestExactlyTheLimitPasses(t *testing.T) {
	w := newCases(t)
	for _, most := range []int64{1, 2, 10} {
		for _, l := range w.everyKind(most) {
			l.Name = fmt.Sprint(l.Name, most)
			for range 2 {
				for range most {
					w.passes(true, on(l, 1))
				}
				d := w.passes(false, on(l, 1))
				w.passes(false, on(l, 1))
				w.now += d.Verdicts[0].ResetAfter.Microseconds()
			}
		}
	}
}

// TestRefundWithNothingLeft: a ticket gives back when nothing is left too, once, and no more than was taken.
func TestRefundWithNothingLeft(t *testing.T) {
	w := newCases(t)
	for _, l := range w.everyKind(10) {
		var tickets []*limit.Ticket
		for range 10 {
			_, ticket := w.take(on(l, 1))
			tickets = append(tickets, ticket)
			w.now++
		}
		w.passes(false, on(l, 1))
		if !w.finish(tickets[3]) {
			t.Errorf("%s: the ticket was not settled", l.Name)
		}
		w.passes(true, on(l, 1))
		w.passes(false, on(l, 1))
		for range 2 {
			for _, ticket := range tickets {
				w.finish(ticket)
			}
		}
		if left := w.left(l); left != 9 {
			t.Errorf("%s: %d are left after all but one have given back, want 9", l.Name, left)
		}
	}
}

// TestNeverMoreThanTheLimitIsLeft: whatever is given back, at once and after a long idle time.
func TestNeverMoreThanTheLimitIsLeft(t *testing.T) {
	w := newCases(t)
	for _, idle := range []int64{0, oneSecond, 24 * oneHour, 60 * 24 * oneHour} {
		for _, l := range w.everyKind(10) {
			l.Name = fmt.Sprint(l.Name, idle)
			_, first := w.take(on(l, 2))
			_, other := w.take(on(l, 3))
			w.now += idle
			for range 2 {
				w.finish(first)
				w.finish(other)
			}
			if left := w.left(l); left != 10 {
				t.Errorf("%s: %d are left after %dµs, want 10", l.Name, left, idle)
			}
		}
	}
}

// TestRefundAfterTheEnd: when what was charged is gone by itself, tickets give nothing back: no state is
// made, and exactly the limit passes.
func TestRefundAfterTheEnd(t *testing.T) {
	w := newCases(t)
	for _, l := range w.everyKind(5) {
		var tickets []*limit.Ticket
		for range 5 {
			_, ticket := w.take(on(l, 1))
			tickets = append(tickets, ticket)
		}
		d := w.passes(false, on(l, 1))
		w.now += d.Verdicts[0].ResetAfter.Microseconds()
		w.do("DEL", on(l, 0).Key) // as Redis does by now
		for _, ticket := range tickets {
			w.finish(ticket)
		}
		if n := w.do("EXISTS", on(l, 0).Key); n != int64(0) {
			t.Errorf("%s: a refund has made a key", l.Name)
		}
		for range 5 {
			w.passes(true, on(l, 1))
		}
		for _, ticket := range tickets {
			w.finish(ticket)
		}
		w.passes(false, on(l, 1))
	}
}

// TestRefusedByOneIsChargedByNone: a request that finds no slot costs nothing of the rate.
func TestRefusedByOneIsChargedByNone(t *testing.T) {
	w := newCases(t)
	rate, calls := w.leaky(2, 3600*oneSecond, 2), w.must(limit.NewConcurrency(1, oneHour))
	both := []limit.Charge{on(rate, 1), on(calls, 1)}
	_, a := w.take(both...)
	w.passes(false, both...)
	if _, err := w.settleBoth(&limit.Settlement{Act: limit.Finish, Ticket: a, Actual: []int64{1, 0}}); err != nil {
		t.Fatal(err)
	}
	w.passes(true, both...)
	if left := w.left(rate); left != 0 {
		t.Errorf("%d of the rate are left, want 0", left)
	}
}

// TestSameRequestIDIsChargedOnce: asked three times, charged once; another cost is refused.
func TestSameRequestIDIsChargedOnce(t *testing.T) {
	w := newCases(t)
	for _, l := range w.everyKind(10) {
		first := ""
		ask := func(cost int64) *limit.Decision {
			r := w.question(on(l, cost))
			r.Grant, r.GrantTTL = "rl:{"+l.Name+"}:~request:1", time.Minute
			return w.both(r)[0]
		}
		for i := range 3 {
			d := ask(1)
			if first == "" {
				first = d.ID
			}
			if !d.Allowed || d.ID != first || d.Age != time.Duration(i)*time.Second {
				t.Errorf("%s: question %d: %+v, want the first answer, of %s", l.Name, i, d, first)
			}
			w.now += oneSecond
		}
		var invalid *limit.InvalidError
		if err := ask(2).Err; l.Settings.Algorithm != limit.ConcurrencyAlgorithm && (!errors.As(err, &invalid) || invalid.Field != "request_id") {
			t.Errorf("%s: with another cost: %v", l.Name, err)
		}
		if left := w.left(l); left != 9 {
			t.Errorf("%s: %d are left, want 9", l.Name, left)
		}
	}
}

// TestGrantOfAWaitIsRepeatedAsItWas: what waited for its turn was granted, also when it is asked again by
// one who would not wait, or when the bucket has drained.
func TestGrantOfAWaitIsRepeatedAsItWas(t *testing.T) {
	w := newCases(t)
	l := w.leaky(1, oneSecond, 1)
	w.passes(true, on(l, 1))
	r := w.question(on(l, 1))
	r.Grant, r.GrantTTL, r.MaxWait, r.List = "rl:{leaky_bucket}:~request:1", time.Minute, 5*time.Second, true
	if d := w.both(r)[0]; !d.Allowed || d.Hold() != time.Second {
		t.Fatalf("got %+v, want a hold of a second", d)
	}
	for _, wait := range []time.Duration{0, 500 * time.Millisecond, time.Minute} {
		w.now += oneSecond / 2
		again := w.question(on(l, 1))
		again.Grant, again.GrantTTL, again.MaxWait = r.Grant, r.GrantTTL, wait
		if d := w.both(again)[0]; !d.Allowed || d.ID != r.ID || d.Hold() != time.Second {
			t.Errorf("asked again with a wait of %v: %+v", wait, d)
		}
	}
}
