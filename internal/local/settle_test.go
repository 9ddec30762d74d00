package local_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

func slotsOf(t testing.TB, name string, most int64, ttl time.Duration) *limit.Limit {
	t.Helper()
	s, err := limit.NewConcurrency(most, ttl.Microseconds())
	if err != nil {
		t.Fatal(err)
	}
	return &limit.Limit{Name: name, Unit: limit.RequestsUnit, Settings: s}
}

// decideAt decides one request at a time.
func decideAt(m *local.Memory, now int64, r limit.Request) limit.Decision {
	var d limit.Decision
	m.DecideAt(now, []limit.Request{r}, []*limit.Decision{&d})
	d.Conclude()
	return d
}

// take asks for the charges under an id, and returns the ticket of the decision; nil when it is denied.
func take(m *local.Memory, now int64, id string, charges ...limit.Charge) *limit.Ticket {
	d := decideAt(m, now, limit.Request{Charges: charges, ID: id, Life: time.Hour})
	if !d.Allowed {
		return nil
	}
	t := &limit.Ticket{ID: d.ID, Expires: d.Expires, Charges: charges}
	for _, v := range d.Verdicts {
		t.Marks = append(t.Marks, v.Mark)
	}
	return t
}

// settled is what came of a settlement.
type settled struct {
	done bool
	left []int64
	err  error
}

func settleAt(m *local.Memory, now int64, act limit.Act, t *limit.Ticket, actual ...int64) settled {
	answer, err := m.SettleAt(now, &limit.Settlement{Act: act, Ticket: t, Actual: actual})
	s := settled{done: answer.Done, err: err}
	for _, v := range answer.Verdicts {
		s.left = append(s.left, v.Remaining)
	}
	return s
}

func (s settled) is(done bool, left ...int64) bool {
	return s.err == nil && s.done == done && slices.Equal(s.left, left)
}

// TestMemoryFinishes: the difference is charged or given back and the slot freed, once.
func TestMemoryFinishes(t *testing.T) {
	m := newMemory(t, 0)
	tokens, calls := hourly(t, "tokens", 1000), slotsOf(t, "calls", 2, time.Hour)
	a := take(m, start, "a", chargeOf(tokens, 500), chargeOf(calls, 1))
	b := take(m, start, "b", chargeOf(tokens, 500), chargeOf(calls, 1))
	if c := take(m, start, "c", chargeOf(tokens, 0), chargeOf(calls, 1)); c != nil {
		t.Fatal("a third call has a slot")
	}
	for _, tt := range []struct {
		name string
		got  settled
		done bool
		left []int64
	}{
		{"less", settleAt(m, start, limit.Finish, a, 100, 0), true, []int64{400, 1}},
		{"again", settleAt(m, start+1, limit.Finish, a, 100, 0), false, []int64{400, 1}},
		{"again, with another cost", settleAt(m, start+2, limit.Finish, a, 999, 0), false, []int64{400, 1}},
		{"given back after that", settleAt(m, start+2, limit.GiveBack, a), false, []int64{400, 1}},
		{"more", settleAt(m, start+3, limit.Finish, b, 1500, 0), true, []int64{-600, 2}},
	} {
		if !tt.got.is(tt.done, tt.left...) {
			t.Errorf("%s: %+v, want %t, %v left", tt.name, tt.got, tt.done, tt.left)
		}
	}
	if d := askAt(m, start+4, chargeOf(tokens, 0)); d.Allowed {
		t.Errorf("a peek passes in debt: %+v", d)
	}
}

// TestMemorySettlesAllOrNothing: a debt that is too deep, or a slot that has expired, leaves every limit of
// the ticket as it was, and the ticket may still be settled.
func TestMemorySettlesAllOrNothing(t *testing.T) {
	m := newMemory(t, 0)
	tokens, calls := hourly(t, "tokens", 1000), slotsOf(t, "calls", 2, time.Minute)
	long := slotsOf(t, "long", 1, time.Hour)
	a := take(m, start, "a", chargeOf(long, 1), chargeOf(calls, 1), chargeOf(tokens, 10))
	var invalid *limit.InvalidError
	if got := settleAt(m, start, limit.Finish, a, 0, 0, limit.MaxNumber); !errors.As(got.err, &invalid) || invalid.Field != "cost.requests" {
		t.Errorf("a debt of 2^53: %v", got.err)
	}
	if got := lefts(m, long, calls, tokens); !slices.Equal(got, []int64{0, 1, 990}) {
		t.Errorf("after that %v are left, want 0, 1 and 990", got)
	}
	late := start + time.Minute.Microseconds()
	if got := settleAt(m, late, limit.Renew, a); !errors.Is(got.err, limit.ErrExpired) {
		t.Errorf("renewed with an expired slot: %v", got.err)
	}
	if d := askAt(m, start+time.Hour.Microseconds(), chargeOf(long, 1)); !d.Allowed {
		t.Error("the other slot was renewed alone")
	}
	if got := settleAt(m, late, limit.Finish, a, 0, 0, 0); !got.done || got.err != nil {
		t.Errorf("finished after an expired slot: %+v", got)
	}
	if got := settleAt(m, late, limit.Renew, a); !errors.Is(got.err, limit.ErrExpired) {
		t.Errorf("renewed after a finish: %v", got.err)
	}
}

// TestMemoryTicketsExpire: at the very microsecond.
func TestMemoryTicketsExpire(t *testing.T) {
	m, l := newMemory(t, 0), hourly(t, "l", 100)
	a := take(m, start, "a", chargeOf(l, 10))
	for _, act := range []limit.Act{limit.Finish, limit.Renew, limit.GiveBack} {
		if got := settleAt(m, a.Expires, act, a, 0); !errors.Is(got.err, limit.ErrExpired) {
			t.Errorf("act %d: error %v, want ErrExpired", act, got.err)
		}
	}
	if got := settleAt(m, a.Expires-1, limit.Finish, a, 0); !got.done {
		t.Errorf("just before it expires: %+v", got)
	}
}

// TestMemoryFinishesOnce: of many finishes of one ticket at once, one settles.
func TestMemoryFinishesOnce(t *testing.T) {
	m := newMemory(t, 0)
	l := hourly(t, "l", 1000)
	r := limit.Request{Charges: []limit.Charge{chargeOf(l, 10)}, ID: "a", Life: time.Hour}
	var d limit.Decision
	m.Decide(t.Context(), []limit.Request{r}, []*limit.Decision{&d})
	ticket := &limit.Ticket{ID: d.ID, Expires: d.Expires, Charges: r.Charges, Marks: []int64{d.Verdicts[0].Mark}}
	var done atomic.Int64
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			answer, err := m.Settle(t.Context(), &limit.Settlement{Act: limit.Finish, Ticket: ticket, Actual: []int64{0}})
			if err != nil {
				t.Error(err)
			}
			if answer.Done {
				done.Add(1)
			}
		})
	}
	group.Wait()
	if done.Load() != 1 {
		t.Errorf("%d of 50 finishes settled", done.Load())
	}
}

// TestMemoryRemembersGrants: the same question is answered as before, by whatever settings and with
// whatever wait it is asked again; another cost is refused, a denial is not remembered, and a grant no
// longer than it is to be.
func TestMemoryRemembersGrants(t *testing.T) {
	m, l := newMemory(t, 0), hourly(t, "l", 10)
	l.Settings.Algorithm = limit.LeakyBucketAlgorithm
	ask := func(now int64, id string, cost int64, maxWait time.Duration) limit.Decision {
		return decideAt(m, now, limit.Request{
			Charges: []limit.Charge{chargeOf(l, cost)}, ID: id, Life: time.Hour, MaxWait: maxWait, Grant: "grant", GrantTTL: time.Minute,
		})
	}
	if d := ask(start, "denied", 11, 0); d.Allowed {
		t.Fatal("11 of 10 pass")
	}
	askAt(m, start, chargeOf(l, 10))
	first := ask(start, "first", 2, 3*time.Hour)
	if !first.Allowed || first.Hold() != 2*time.Hour {
		t.Fatalf("the first: %+v", first)
	}
	other := *l // the config was reloaded
	other.Settings.Bucket.Burst = 20
	l = &other
	for i, wait := range []time.Duration{3 * time.Hour, 0} {
		now := int64(start + (1+i)*1_000_000)
		d := ask(now, "again", 2, wait)
		want := first
		want.Age = time.Duration(1+i) * time.Second
		same := slices.EqualFunc(d.Verdicts, first.Verdicts, func(a, b limit.Verdict) bool {
			b.Limit, b.Settings = l, &l.Settings
			return a == b
		})
		if !same || d.ID != "first" || d.At != first.At || d.Age != want.Age || d.Expires != first.Expires || !d.Allowed {
			t.Errorf("asked again with a wait of %v: %+v, want %+v", wait, d, want)
		}
	}
	var invalid *limit.InvalidError
	if d := ask(start+3_000_000, "other", 3, 3*time.Hour); !errors.As(d.Err, &invalid) || invalid.Field != "request_id" {
		t.Errorf("another cost: %+v", d)
	}
	if d := ask(start-5_000_000, "back", 2, 0); d.ID != "first" || d.Age != 0 {
		t.Errorf("after the clock was set back: %+v, want an age of 0", d)
	}
	if d := ask(start+60_000_000, "late", 2, 3*time.Hour); d.ID != "late" {
		t.Errorf("after its time: %+v", d)
	}
}

// TestMemoryGivesBackTheLast: a wait that is given up gives back all that was charged, but only its slots if
// something was charged to its leaky bucket since.
func TestMemoryGivesBackTheLast(t *testing.T) {
	m := newMemory(t, 0)
	l, calls := hourly(t, "l", 1), slotsOf(t, "calls", 9, time.Hour)
	l.Settings.Algorithm = limit.LeakyBucketAlgorithm
	wait := func(id string) *limit.Ticket {
		r := limit.Request{Charges: []limit.Charge{chargeOf(l, 1), chargeOf(calls, 1)}, ID: id, Life: 24 * time.Hour, MaxWait: 10 * time.Hour}
		d := decideAt(m, start, r)
		if !d.Allowed {
			t.Fatalf("%s: %+v", id, d)
		}
		return &limit.Ticket{ID: id, Expires: d.Expires, Charges: r.Charges, Marks: []int64{d.Verdicts[0].Mark, d.Verdicts[1].Mark}}
	}
	a, b, c := wait("a"), wait("b"), wait("c")
	for _, tt := range []struct {
		name   string
		ticket *limit.Ticket
		done   bool
		left   []int64
	}{
		{"the second of three", b, true, []int64{-2, 7}}, {"the third", c, true, []int64{-1, 8}},
		{"the third again", c, false, []int64{-1, 8}}, {"the second again", b, false, []int64{-1, 8}}, {"the first, not the last", a, true, []int64{-1, 9}},
	} {
		if got := settleAt(m, start+1000, limit.GiveBack, tt.ticket); !got.is(tt.done, tt.left...) {
			t.Errorf("%s: %+v, want %t, %v left", tt.name, got, tt.done, tt.left)
		}
	}
}

// TestMemoryForgetsMarkers: what says that a ticket was finished makes room when the ticket could no longer
// be, before anything that is alive.
func TestMemoryForgetsMarkers(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := local.NewMemory(local.MemoryConfig{MaxKeys: 5, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	l := slotsOf(t, "calls", 5, time.Second)
	for i := range int64(500) {
		now := start + i*time.Hour.Microseconds()
		ticket := take(m, now, fmt.Sprint("id", i), chargeOf(l, 1))
		if got := settleAt(m, now, limit.Finish, ticket, 0); !got.is(true, 5) {
			t.Fatalf("round %d: %+v", i, got)
		}
	}
	const none = `
# HELP tidegate_local_evictions_total Live states that went to make room for others; each may admit one more burst.
# TYPE tidegate_local_evictions_total counter
tidegate_local_evictions_total 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(none), "tidegate_local_evictions_total"); err != nil {
		t.Error(err)
	}
}
