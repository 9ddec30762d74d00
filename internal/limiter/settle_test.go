package limiter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
)

// TestTicketsAreGiven: to whom asks for one, and with every slot; never for a denial.
func TestTicketsAreGiven(t *testing.T) {
	k := newDesk(t)
	tests := []struct {
		name   string
		policy string
		tokens int64
		change func(*limit.Query)
		want   bool
	}{
		{"not asked for", "two", 1, nil, false},
		{"denied", "two", 1, wantsTicket, false},
		{"with a slot", "slots", 1, nil, true},
		{"a peek takes no slot", "slots", 0, func(q *limit.Query) { q.Peek = true }, false},
		{"asked for", "slots", 0, func(q *limit.Query) {
			wantsTicket(q)
			q.Costs = append(q.Costs, limit.UnitCost{Unit: limit.RequestsUnit})
		}, true},
	}
	for _, tt := range tests {
		d := k.ask(t.Context(), tt.policy, tt.tokens, tt.change)
		if d.Err != nil || (d.Ticket != "") != tt.want {
			t.Errorf("%s: ticket %q, error %v", tt.name, d.Ticket, d.Err)
		}
	}
}

// TestFinish: the difference is charged or given back and the slot freed, once, and units that are
// not named stay as charged.
func TestFinish(t *testing.T) {
	k := newDesk(t)
	finish := func(ticket string, costs ...limit.UnitCost) (bool, error) {
		settled, err := k.Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: ticket, Costs: costs})
		return settled.Done, err
	}
	first, second := k.ask(t.Context(), "slots", 100, nil), k.ask(t.Context(), "slots", 200, nil)
	if left := k.left("tokens"); left != 700 || k.left("busy") != 0 {
		t.Fatalf("%d tokens and %d slots left", left, k.left("busy"))
	}
	if done, err := finish(first.Ticket, limit.UnitCost{Unit: "tokens", Amount: 150}); !done || err != nil {
		t.Fatal(done, err)
	}
	if done, err := finish(first.Ticket, limit.UnitCost{Unit: "tokens", Amount: 0}); done || err != nil {
		t.Fatalf("again: done %t, %v", done, err)
	}
	if left := k.left("tokens"); left != 650 || k.left("busy") != 1 {
		t.Errorf("50 more: %d tokens and %d slots left", left, k.left("busy"))
	}
	if done, err := finish(second.Ticket); !done || err != nil {
		t.Fatal(done, err)
	}
	if left := k.left("tokens"); left != 650 || k.left("busy") != 2 {
		t.Errorf("as charged: %d tokens and %d slots left", left, k.left("busy"))
	}
	var invalid *limit.InvalidError
	if _, err := finish(second.Ticket, limit.UnitCost{Unit: "images", Amount: 1}); !errors.As(err, &invalid) || invalid.Field != "cost.images" {
		t.Errorf("an unknown unit: %v", err)
	}
	if _, err := finish("x" + second.Ticket); !errors.Is(err, limit.ErrForged) {
		t.Errorf("forged: %v", err)
	}
	if _, err := newDesk(t).Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: second.Ticket}); !errors.Is(err, limit.ErrExpired) {
		t.Errorf("in another process: %v", err)
	}
}

// TestRenew: a slot lasts as long as it is renewed, under the same id; not once it is finished, and
// not once it has expired.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t)
		ticket := k.ask(t.Context(), "slots", 1, nil).Ticket
		lost := k.ask(t.Context(), "slots", 1, nil).Ticket
		for range 3 {
			time.Sleep(time.Hour)
			var err error
			if ticket, err = k.Renew(t.Context(), time.Now(), ticket); err != nil {
				t.Fatal(err)
			}
		}
		if left := k.left("busy"); left != 1 {
			t.Errorf("%d slots left, want 1 renewed and 1 expired", left)
		}
		if _, err := k.Renew(t.Context(), time.Now(), lost); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("an expired slot: %v", err)
		}
		if settled, err := k.Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: ticket}); err != nil || !settled.Done {
			t.Errorf("finish: %+v, %v", settled, err)
		}
		if _, err := k.Renew(t.Context(), time.Now(), ticket); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("after the finish: %v", err)
		}
		time.Sleep(3 * time.Hour)
		if _, err := k.Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: ticket}); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("an expired ticket: %v", err)
		}
	})
}

// TestWaiting: those that wait are answered one after the other as the bucket drains, and what would
// have to wait for longer is denied with the time after which it would not.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t)
		start := time.Now()
		var mu sync.Mutex
		var answered []time.Duration
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				d := k.ask(t.Context(), "two", 1, waits(250*time.Millisecond))
				mu.Lock()
				defer mu.Unlock()
				if d.Allowed {
					answered = append(answered, time.Since(start))
				} else if d.RetryAfter != 50*time.Millisecond {
					t.Errorf("the fourth: %+v", d)
				}
			})
		}
		group.Wait()
		if want := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}; !slices.Equal(answered, want) {
			t.Errorf("answered at %v, want %v", answered, want)
		}
		if left := k.left("tokens"); left != 997 {
			t.Errorf("%d tokens left, want 997", left)
		}
	})
}

// TestHangingUp: who goes away while it waits gives back everything, if it is the last that waits;
// else its place stays, since two would be let through at one time.
func TestHangingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t)
		k.ask(t.Context(), "two", 1, nil)
		ctx := make([]context.Context, 3)
		cancel := make([]context.CancelFunc, 3)
		errs := make([]error, 3)
		var group sync.WaitGroup
		for i := range ctx {
			ctx[i], cancel[i] = context.WithCancel(t.Context())
			group.Go(func() { errs[i] = k.ask(ctx[i], "two", 10, waits(time.Second)).Err })
			synctest.Wait()
		}
		steps := []struct {
			name   string
			caller int
			left   int64 // tokens
			reset  time.Duration
		}{
			{"the first of three", 0, 969, 400 * time.Millisecond},
			{"the last", 2, 979, 300 * time.Millisecond},
			{"now the last", 1, 989, 200 * time.Millisecond},
		}
		for _, step := range steps {
			cancel[step.caller]()
			synctest.Wait()
			d := k.ask(t.Context(), "two", 0, func(q *limit.Query) { q.Peek = true })
			if v := d.Verdicts; v[1].Remaining != step.left || v[0].ResetAfter != step.reset {
				t.Errorf("%s goes away: %d tokens left, the bucket drains in %v; want %d and %v", step.name, v[1].Remaining, v[0].ResetAfter, step.left, step.reset)
			}
			if !errors.Is(errs[step.caller], limit.ErrUnavailable) {
				t.Errorf("%s: error %v", step.name, errs[step.caller])
			}
		}
		group.Wait()
	})
}

// TestRequestID: the same question again is answered as before, waits only for what is left to wait,
// and charges nothing; with another cost it is refused.
func TestRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t)
		k.ask(t.Context(), "two", 1, nil)
		asks := func(tokens int64) limit.Decision {
			return k.ask(t.Context(), "two", tokens, func(q *limit.Query) {
				q.Ticket, q.RequestID, q.MaxWait = true, "once", time.Second
			})
		}
		gone, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(30 * time.Millisecond)
			cancel()
		}()
		k.ask(gone, "two", 10, func(q *limit.Query) { q.RequestID, q.MaxWait = "once", time.Second })
		if d := k.ask(t.Context(), "two", 10, func(q *limit.Query) { q.RequestID, q.MaxWait = "once", 50*time.Millisecond }); d.Allowed || d.RetryAfter != 20*time.Millisecond {
			t.Errorf("a repeat that does not want to wait as long: %+v", d)
		}
		start := time.Now()
		first := asks(10)
		if waited := time.Since(start); first.Err != nil || waited != 70*time.Millisecond {
			t.Errorf("the repeat waited %v, want the 70ms that were left: %+v", waited, first)
		}
		start = time.Now()
		second := asks(10)
		if second.Err != nil || !second.Allowed || second.ID != first.ID || second.Expires != first.Expires || time.Since(start) > 0 {
			t.Errorf("got %+v, want the answer %+v again", second, first)
		}
		if left := k.left("tokens"); left != 989 {
			t.Errorf("%d tokens left, want 989", left)
		}
		if settled, err := k.Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: second.Ticket}); err != nil || !settled.Done {
			t.Errorf("finish: %+v, %v", settled, err)
		}
		var invalid *limit.InvalidError
		if d := asks(11); !errors.As(d.Err, &invalid) || invalid.Field != "request_id" {
			t.Errorf("another cost: %v", d.Err)
		}
		time.Sleep(time.Minute + time.Second) // what it may wait longer than is remembered
		if d := asks(11); d.Err != nil || !d.Allowed || d.ID == first.ID {
			t.Errorf("once it is forgotten: %+v", d)
		}
	})
}

// TestFinishOfEveryForm: a ticket is settled once, whichever of its forms the client gives, and whichever
// of them has expired meanwhile.
func TestFinishOfEveryForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t)
		first := k.ask(t.Context(), "slots", 100, nil).Ticket
		time.Sleep(time.Hour)
		second, err := k.Renew(t.Context(), time.Now(), first)
		if err != nil {
			t.Fatal(err)
		}
		settle := &limiter.Settlement{Costs: []limit.UnitCost{{Unit: "tokens", Amount: 60}}}
		settle.Ticket = first
		if settled, err := k.Finish(t.Context(), time.Now(), settle); err != nil || !settled.Done {
			t.Fatal(settled, err)
		}
		time.Sleep(90 * time.Minute) // the first form has expired, the second has not
		settle.Ticket = second
		if settled, err := k.Finish(t.Context(), time.Now(), settle); err != nil || settled.Done {
			t.Errorf("the other form: %+v, %v; want that it was settled before", settled, err)
		}
	})
}

// TestFinishUnderOtherRules: what is given back is given to the limit as it is now, and to no more than
// it holds now.
func TestFinishUnderOtherRules(t *testing.T) {
	for burst, want := range map[int64]int64{5000: 5000, 1000: 1000, 500: 500} {
		k := newDesk(t)
		ticket := k.ask(t.Context(), "slots", 40, nil).Ticket
		k.SetRules(deskRules(t, burst))
		if burst == 5000 { // a fresh bucket, of which 10 are gone
			if err := k.Forget(t.Context(), "tokens", limit.Attributes{{Name: "user", Value: "u"}}); err != nil {
				t.Fatal(err)
			}
			k.ask(t.Context(), "slots", 10, nil)
		}
		settle := &limiter.Settlement{Ticket: ticket, Costs: []limit.UnitCost{{Unit: "tokens", Amount: 0}}}
		if settled, err := k.Finish(t.Context(), time.Now(), settle); err != nil || !settled.Done {
			t.Fatal(settled, err)
		}
		if left := k.left("tokens"); left != want {
			t.Errorf("burst %d: %d left, want %d", burst, left, want)
		}
	}
}

// TestTicketsOfTheSharedStore are good in every process that has it, and in none that counts for itself.
func TestTicketsOfTheSharedStore(t *testing.T) {
	shared := newBench(t, &fakeStore{}, nil)
	shared.Rules().TicketTTL = time.Hour
	d := shared.decide(limit.Query{Limit: "a", HasKey: true, Key: "u", Ticket: true})[0]
	for range 2 {
		if _, err := shared.Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: d.Ticket}); err != nil {
			t.Error(err)
		}
	}
	if _, err := newDesk(t).Finish(t.Context(), time.Now(), &limiter.Settlement{Ticket: d.Ticket}); !errors.Is(err, limit.ErrExpired) {
		t.Errorf("in an embedded store: %v, want ErrExpired", err)
	}
}

// TestSlotsOutliveTheWait: a question that could wait for longer than its slot lasts is refused.
func TestSlotsOutliveTheWait(t *testing.T) {
	k := newDesk(t)
	var invalid *limit.InvalidError
	if d := k.ask(t.Context(), "all", 1, waits(2*time.Hour)); !errors.As(d.Err, &invalid) || invalid.Field != "max_wait_ms" {
		t.Errorf("a wait of the slot's ttl: %+v", d)
	}
	if d := k.ask(t.Context(), "all", 1, waits(2*time.Hour-time.Millisecond)); d.Err != nil || d.Ticket == "" {
		t.Errorf("a shorter one: %+v", d)
	}
}
