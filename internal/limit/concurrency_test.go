package limit_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func slots(t testing.TB, most, ttl int64) *limit.Settings {
	t.Helper()
	s, err := limit.NewConcurrency(most, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// holder is a slot that is held, as the reference knows it.
type holder struct {
	id       string
	start    int64
	expiring int64
}

// slotTrace is one random trace of concurrency. Beside the state it keeps a list of all holders, without
// any order or shortcut, as the reference.
type slotTrace struct {
	t       *testing.T
	rng     *rand.Rand
	s       *limit.Settings
	now     int64
	wait    int64
	state   limit.State
	holders []holder
}

// pause lets time pass, sets the clock back or changes the settings.
func (r *slotTrace) pause() {
	switch r.rng.IntN(8) {
	case 0:
		r.now += r.rng.Int64N(3000)
	case 1, 2:
		r.now += r.rng.Int64N(200)
	case 3:
		r.now += max(0, r.wait-r.rng.Int64N(2))
	case 4:
		// What has expired is gone from a store before its clock is set back.
		r.expire()
		r.state.Entries = slices.DeleteFunc(slices.Clone(r.state.Entries), func(e limit.Entry) bool { return e.At <= r.now })
		r.now -= r.rng.Int64N(2000)
	case 5:
		r.s = slots(r.t, r.rng.Int64N(6), 1+r.rng.Int64N(2000))
	}
	r.expire()
}

func (r *slotTrace) expire() {
	r.holders = slices.DeleteFunc(r.holders, func(h holder) bool { return h.expiring <= r.now })
}

// free returns how long it takes until no more than so many slots are held.
func (r *slotTrace) free(held int64) int64 {
	var times []int64
	for _, h := range r.holders {
		times = append(times, h.expiring-r.now)
	}
	slices.Sort(times)
	if over := int64(len(times)) - held; over > 0 {
		return times[over-1]
	}
	return 0
}

func (r *slotTrace) decide(id string, cost int64) {
	late := false
	for i := range r.holders {
		late = late || r.holders[i].expiring > r.now+r.s.Slots.TTL
		r.holders[i].expiring = min(r.holders[i].expiring, r.now+r.s.Slots.TTL)
	}
	want := int64(limit.Never)
	if slots := min(cost, 1); slots <= r.s.Slots.Limit {
		want = r.free(r.s.Slots.Limit - slots)
	}
	next := r.state
	wait, moved := r.s.Decide(&next, r.now, cost)
	if wait != want || moved != late {
		r.t.Fatalf("%+v asked for %d: waits %d, moved %t; want %d, %t", r, cost, wait, moved, want, late)
	}
	r.wait = max(0, wait)
	if wait != 0 {
		cost = 0
	}
	if cost > 0 {
		r.holders = append(r.holders, holder{id, r.now, r.now + r.s.Slots.TTL})
	}
	if cost > 0 || moved {
		r.s.Charge(&next, r.now, cost, id)
		r.state = next
	}
}

// settle gives a slot back, or renews it.
func (r *slotTrace) settle(id string, renew bool) {
	i := slices.IndexFunc(r.holders, func(h holder) bool { return h.id == id })
	var held, ok bool
	if renew {
		held, ok = r.s.Renew(&r.state, r.now, id), true
	} else {
		held, ok = r.s.Settle(&r.state, r.now, &limit.Payment{Charged: 1, ID: id})
	}
	if held != (i >= 0) || !ok {
		r.t.Fatalf("%+v settled %s, renew %t: %t, %t", r, id, renew, held, ok)
	}
	switch {
	case i >= 0 && renew:
		r.holders[i].expiring = r.now + r.s.Slots.TTL
	case i >= 0:
		r.holders = slices.Delete(r.holders, i, i+1)
	}
}

// compare compares what is reported and listed of the state with the reference.
func (r *slotTrace) compare() {
	left, reset := r.s.Report(&r.state, r.now)
	if wantLeft, wantReset := r.s.Slots.Limit-int64(len(r.holders)), r.last(); left != wantLeft || reset != wantReset {
		r.t.Fatalf("%+v: %d left, reset after %d; want %d, %d", r, left, reset, wantLeft, wantReset)
	}
	if until := r.s.Until(&r.state); len(r.holders) > 0 && until != r.now+reset {
		r.t.Fatalf("%+v: until %d, reset after %d", r, until, reset)
	}
	slices.SortFunc(r.holders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.expiring, b.expiring))
	})
	var want []limit.Listed
	for _, h := range r.holders {
		want = append(want, limit.Listed{Cost: 1, Age: max(0, r.now-h.start), Due: h.expiring - r.now})
	}
	if got := r.s.List(&r.state, r.now); !slices.Equal(got, want) {
		r.t.Fatalf("%+v: listed %+v, want %+v", r, got, want)
	}
}

// last returns how long it takes until no slot is held.
func (r *slotTrace) last() int64 {
	last := int64(0)
	for _, h := range r.holders {
		last = max(last, h.expiring-r.now)
	}
	return last
}

// TestConcurrencyIsExact compares decisions, settlements, renewals and lists with the reference, over
// settings that change on the way and a clock that is set both ways.
func TestConcurrencyIsExact(t *testing.T) {
	for seed := range traces(1000) {
		r := &slotTrace{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 3)), s: slots(t, 3, 1000), now: vectorStart}
		for step := range 150 {
			r.pause()
			some := fmt.Sprint("id", r.rng.IntN(step+1))
			switch r.rng.IntN(5) {
			case 0:
				r.settle(some, false)
			case 1:
				r.settle(some, true)
			default:
				r.decide(fmt.Sprint("id", step), r.rng.Int64N(3))
			}
			r.compare()
		}
	}
}

// TestConcurrencyAdmitsTheLimit: of a crowd at one instant exactly the limit passes, cold and after use.
func TestConcurrencyAdmitsTheLimit(t *testing.T) {
	for _, most := range []int64{1, 2, 10} {
		s, k := slots(t, most, 1_000_000), key{}
		for _, now := range []int64{vectorStart, vectorStart + 1_000_000} {
			allowed := int64(0)
			for range 100 {
				if k.ask(now, s, 0, 1).Allowed {
					allowed++
				}
			}
			if allowed != most {
				t.Errorf("limit %d at %d: %d passed", most, now, allowed)
			}
		}
	}
}

// TestConcurrencyIsPrunedInSteps: a write removes at most 1,000 expired holders, but forgets all when
// none is live.
func TestConcurrencyIsPrunedInSteps(t *testing.T) {
	s, now := slots(t, 10_000, 1_000_000), int64(vectorStart)
	var k key
	for range 2500 {
		k.ask(now, s, 0, 1)
	}
	k.ask(now+1000, s, 0, 1) // outlives them
	now += 1_000_500
	for _, want := range []int{1502, 503, 4, 5} {
		k.ask(now, s, 0, 1)
		if got := len(k.state.Entries); got != want {
			t.Errorf("%d entries are left, want %d", got, want)
		}
	}
	if v := k.ask(now, s, 0, 0); v.Remaining != 10_000-5 {
		t.Errorf("%d are left, want %d", v.Remaining, 10_000-5)
	}
	k.ask(now+5_000_000, s, 0, 1)
	if got := len(k.state.Entries); got != 1 {
		t.Errorf("after all have expired %d entries are left, want 1", got)
	}
}

// TestConcurrencyListsTheOldest: 100 holders at most, the oldest of those 1,000 that expire first.
func TestConcurrencyListsTheOldest(t *testing.T) {
	var k key
	s := slots(t, 10_000, 1_000_000)
	for i := range int64(1500) {
		k.ask(vectorStart+i, s, 0, 1)
	}
	next := k.state
	now := int64(vectorStart + 1500)
	s.Decide(&next, now, 0)
	list := s.List(&next, now)
	if len(list) != 100 {
		t.Fatalf("%d are listed, want 100", len(list))
	}
	for i, got := range list {
		if want := (limit.Listed{Cost: 1, Age: 1500 - int64(i), Due: 1_000_000 - 1500 + int64(i)}); got != want {
			t.Fatalf("holder %d: %+v, want %+v", i, got, want)
		}
	}
}

// TestConcurrencySeed: the slots that are not left are held until the reset, and no longer than a ttl.
func TestConcurrencySeed(t *testing.T) {
	s, now := slots(t, 5, 1_000_000), int64(vectorStart)
	for _, tt := range []struct{ left, reset, wantLeft, wantReset int64 }{
		{5, 0, 5, 0}, {5, 700, 5, 0}, {3, 700, 3, 700}, {0, 5_000_000, 0, 1_000_000}, {-2, 700, -2, 700}, {3, 0, 5, 0},
	} {
		state := s.Seed(now, tt.left, tt.reset)
		if left, reset := s.Report(&state, now); left != tt.wantLeft || reset != tt.wantReset {
			t.Errorf("seeded with %d for %d: %d left, reset after %d; want %d, %d", tt.left, tt.reset, left, reset, tt.wantLeft, tt.wantReset)
		}
	}
}

// TestConcurrencyShare: a node whose share is rounded down to no slot lets one through while it has none
// under way, unless the whole limit lets nothing pass.
func TestConcurrencyShare(t *testing.T) {
	var k key
	share := slots(t, 2, 1_000_000).Share(3)
	if v := k.ask(vectorStart, &share, 0, 1); !v.Allowed || v.Remaining != -1 {
		t.Errorf("the first on a share of none: %+v", v)
	}
	if v := k.ask(vectorStart, &share, 0, 1); v.Allowed || v.Never || v.RetryAfter.Microseconds() != 1_000_000 {
		t.Errorf("the second on a share of none: %+v", v)
	}
	none := slots(t, 0, 1_000_000).Share(3)
	if v := new(key).ask(vectorStart, &none, 0, 1); !v.Never {
		t.Errorf("a share of a limit of 0: %+v", v)
	}
}

// TestConcurrencyLeavesCopiesAlone: a state that was copied before says the same afterwards.
func TestConcurrencyLeavesCopiesAlone(t *testing.T) {
	s, now := slots(t, 10, 1_000_000), int64(vectorStart)
	var state limit.State
	for i := range int64(5) {
		s.Charge(&state, now+i, 1, fmt.Sprint("id", i))
	}
	before := slices.Clone(state.Entries)
	for name, change := range map[string]func(*limit.State){
		"a decision after the clock was set back": func(c *limit.State) { s.Decide(c, now-100, 1) },
		"a decision when two have expired":        func(c *limit.State) { s.Decide(c, now+1_000_001, 1) },
		"a slot given back":                       func(c *limit.State) { s.Settle(c, now, &limit.Payment{Charged: 1, ID: "id1"}) },
		"a renewal":                               func(c *limit.State) { s.Renew(c, now+7, "id2") },
		"a charge":                                func(c *limit.State) { s.Charge(c, now+7, 1, "id9") },
		"a list":                                  func(c *limit.State) { s.List(c, now+7) },
	} {
		copied := state
		change(&copied)
		if !slices.Equal(state.Entries, before) {
			t.Errorf("%s changed a copy: %+v, want %+v", name, state.Entries, before)
		}
	}
}
