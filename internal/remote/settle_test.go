package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// slotsOf is a limit of so many slots that nobody loses in a test.
func slotsOf(name string, most int64) *limit.Limit {
	s, err := limit.NewConcurrency(most, 3_600_000_000)
	if err != nil {
		panic(err) // a bug of the test
	}
	return &limit.Limit{Name: name, Unit: limit.RequestsUnit, Settings: s}
}

// callers counts the questions with an id.
var callers atomic.Int64

// take asks for the charges in a decision that may be settled, and returns its ticket.
func (b *bench) take(charges ...limit.Charge) *limit.Ticket {
	b.t.Helper()
	id := fmt.Sprintf("CALLER%d", callers.Add(1))
	d := new(limit.Decision)
	r := limit.Request{Charges: charges, ID: id, Life: time.Hour, Deadline: time.Now().Add(10 * time.Second)}
	if b.store.Decide(context.Background(), []limit.Request{r}, []*limit.Decision{d}); d.Err != nil {
		b.t.Fatalf("Decide: %v", d.Err)
	}
	d.Conclude()
	if !d.Allowed {
		b.t.Fatalf("it was denied: %+v", d)
	}
	t := &limit.Ticket{ID: d.ID, Expires: d.Expires, Charges: charges}
	for _, v := range d.Verdicts {
		t.Marks = append(t.Marks, v.Mark)
	}
	return t
}

func (b *bench) settle(act limit.Act, t *limit.Ticket, timeout time.Duration, actual ...int64) (limit.Settled, error) {
	s := &limit.Settlement{Act: act, Ticket: t, Actual: actual, Deadline: time.Now().Add(timeout)}
	return b.store.Settle(context.Background(), s)
}

// finish settles the ticket, and returns whether that was done and what is left.
func (b *bench) finish(t *limit.Ticket, actual ...int64) (done bool, left []int64) {
	b.t.Helper()
	answer, err := b.settle(limit.Finish, t, 10*time.Second, actual...)
	if err != nil {
		b.t.Fatalf("Settle: %v", err)
	}
	for _, v := range answer.Verdicts {
		left = append(left, v.Remaining)
	}
	return answer.Done, left
}

// checkTimesToLive fails the test when a key of the server has none.
func checkTimesToLive(t *testing.T, server *redistest.Server) {
	t.Helper()
	for _, key := range server.Do(t, "KEYS", "*").([]any) {
		if ttl := server.Do(t, "PTTL", key.(string)); ttl.(int64) <= 0 && server.Do(t, "EXISTS", key.(string)) == int64(1) {
			t.Errorf("%s: time to live %v", key, ttl)
		}
	}
}

// TestFinishThroughAnyStore: a ticket is settled by a store that did not give it, once, by its own settings.
func TestFinishThroughAnyStore(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		one, other := newBench(t, remote.Config{Addr: server.Addr()}), newBench(t, remote.Config{Addr: server.Socket()})
		tokens, calls := hourly("tokens", 1000, state), slotsOf("calls", 2)
		ticket := one.take(charge(tokens, "a", 500), charge(calls, "a", 1))
		if done, left := other.finish(ticket, 120, 0); !done || !slices.Equal(left, []int64{880, 2}) {
			t.Errorf("settled: %t, %v left; want true, 880 and 2", done, left)
		}
		for _, b := range []*bench{one, other} {
			if done, left := b.finish(ticket, 900, 0); done || !slices.Equal(left, []int64{880, 2}) {
				t.Errorf("settled again: %t, %v left; want false, 880 and 2", done, left)
			}
		}
		deep := one.take(charge(tokens, "a", 1), charge(calls, "a", 1))
		if done, left := other.finish(deep, 2000, 0); !done || !slices.Equal(left, []int64{-1120, 2}) {
			t.Errorf("settled to a debt: %t, %v left; want true, -1120 and 2", done, left)
		}
		if d := one.mustAsk(charge(tokens, "a", 0)); d.Allowed {
			t.Errorf("a peek passes in debt: %+v", d)
		}
		checkTimesToLive(t, server)
	})
}

// TestFinishOnceUnderContention: of many finishes of one ticket at once, through several stores, one settles.
func TestFinishOnceUnderContention(t *testing.T) {
	server := redistest.Start(t)
	stores := []*bench{newBench(t, remote.Config{Addr: server.Addr()}), newBench(t, remote.Config{Addr: server.Addr()})}
	l, calls := hourly("once", 1000, limit.HashState), slotsOf("calls", 5)
	for range 10 {
		ticket := stores[0].take(charge(l, "a", 10), charge(calls, "a", 1))
		var done atomic.Int64
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				answer, err := stores[i%2].settle(limit.Finish, ticket, 10*time.Second, 0, 0)
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
			t.Errorf("%d of 12 finishes settled", done.Load())
		}
	}
	if d := stores[0].mustAsk(charge(l, "a", 0), charge(calls, "a", 0)); d.Verdicts[0].Remaining != 1000 || d.Verdicts[1].Remaining != 5 {
		t.Errorf("left: %+v", d.Verdicts)
	}
}

// TestSettlingLeavesForeignKeysAlone: where one of the keys holds something else, nothing is settled
// anywhere.
func TestSettlingLeavesForeignKeysAlone(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr()})
	l, calls := hourly("settled", 100, limit.HashState), slotsOf("calls", 2)
	for _, tt := range []struct {
		name  string
		write []string // % is the key of the slots, @ a time before the slot expires: it stays
	}{
		{"a string", []string{"SET", "%", "5"}},
		{"a hash", []string{"HSET", "%", "tokens", "5"}},
		{"other members", []string{"ZADD", "%", "9000000000000000", "player"}},
		{"a fraction", []string{"ZADD", "%", "2000000000000000.5", "ID:1"}},
		{"infinity", []string{"ZADD", "%", "inf", "ID:1"}},
		{"below 0", []string{"ZADD", "%", "-1", "ID:1"}},
		{"a fraction before a slot", []string{"ZADD", "%", "@.5", "ID:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rate, slots := charge(l, tt.name, 10), charge(calls, tt.name, 1)
			ticket := b.take(rate, slots)
			if command := strings.Join(tt.write, " "); !strings.Contains(command, "@") {
				server.Do(t, "DEL", slots.Key)
			}
			soon := fmt.Sprint(ticket.Expires - 1_800_000_000) // the slot is held for longer
			for i := range tt.write {
				tt.write[i] = strings.NewReplacer("%", slots.Key, "@", soon).Replace(tt.write[i])
			}
			server.Do(t, tt.write...)
			dumps := func() []any { return []any{server.Do(t, "DUMP", rate.Key), server.Do(t, "DUMP", slots.Key)} }
			before := dumps()
			for _, act := range []limit.Act{limit.Finish, limit.Renew, limit.GiveBack} {
				if _, err := b.settle(act, ticket, 5*time.Second, 3, 0); !errors.Is(err, limit.ErrWrongType) {
					t.Errorf("act %d: error %v, want ErrWrongType", act, err)
				}
			}
			if d, err := b.ask(5*time.Second, rate, slots); err != nil || !errors.Is(d.Err, limit.ErrWrongType) {
				t.Errorf("Decide: %v, %v, want ErrWrongType", err, d.Err)
			}
			if after := dumps(); !slices.Equal(after, before) {
				t.Error("something was changed")
			}
			if n := server.Do(t, "EXISTS", ticket.Marker()); n != int64(0) {
				t.Error("the ticket counts as finished")
			}
		})
	}
	t.Run("the marker", func(t *testing.T) {
		ticket := b.take(charge(l, "marker", 10))
		server.Do(t, "LPUSH", ticket.Marker(), "x")
		if _, err := b.settle(limit.Finish, ticket, 5*time.Second, 3); !errors.Is(err, limit.ErrWrongType) {
			t.Errorf("error %v, want ErrWrongType", err)
		}
		if d := b.mustAsk(charge(l, "marker", 0)); d.Verdicts[0].Remaining != 90 {
			t.Errorf("%d are left, want 90", d.Verdicts[0].Remaining)
		}
	})
}

// TestMarkerOfAFinish: it lies in the slot of the first limit, for as long as the ticket may be settled.
func TestMarkerOfAFinish(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr()})
	first, second := charge(hourly("first", 100, limit.HashState), "a:b", 10), charge(slotsOf("calls", 2), "a", 1)
	tagged := first
	tagged.Key = "rl:{acme}:first~0a1b2c:a:acme"
	for want, charges := range map[string][]limit.Charge{
		"rl:{first:a:b}:~finish:": {first, second}, "rl:{calls:a}:~finish:": {second, first}, "rl:{acme}:~finish:": {tagged},
	} {
		ticket := b.take(charges...)
		b.finish(ticket, make([]int64, len(charges))...)
		if got := ticket.Marker(); got != want+ticket.ID {
			t.Errorf("the marker is %s, want %s", got, want+ticket.ID)
		}
		if ttl := server.Do(t, "PTTL", ticket.Marker()).(int64); ttl < 3_590_000 || ttl > 3_600_000 {
			t.Errorf("%s: time to live %d ms, want an hour", want, ttl)
		}
	}
	checkTimesToLive(t, server)
}

// TestExpiredTickets: by Redis's time, not by ours.
func TestExpiredTickets(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr()})
	l := hourly("expired", 100, limit.HashState)
	ticket := b.take(charge(l, "a", 10))
	ticket.Expires -= time.Hour.Microseconds()
	for _, act := range []limit.Act{limit.Finish, limit.Renew, limit.GiveBack} {
		if _, err := b.settle(act, ticket, 5*time.Second, 3); !errors.Is(err, limit.ErrExpired) {
			t.Errorf("act %d: error %v, want ErrExpired", act, err)
		}
	}
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 90 {
		t.Errorf("%d are left, want 90", d.Verdicts[0].Remaining)
	}
	if n := server.Do(t, "EXISTS", ticket.Marker()); n != int64(0) {
		t.Error("a marker was written")
	}
}
