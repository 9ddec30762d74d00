package remote_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// TestLostFinishIsSafeToRepeat: Redis settles, its reply is lost, the client asks again: settled once.
func TestLostFinishIsSafeToRepeat(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 300 * time.Millisecond})
	l, calls := hourly("lost", 100, limit.HashState), slotsOf("calls", 2)
	b.finish(b.take(charge(l, "warm", 1)), 1) // so that Redis knows the script
	for name, lose := range map[string]func(bool){
		"the reply": proxy.DropReplies,
		"the half":  func(on bool) { proxy.CutReplyAfter(map[bool]int{true: 3, false: -1}[on]) },
	} {
		ticket := b.take(charge(l, name, 30), charge(calls, name, 1))
		lose(true)
		if _, err := b.settle(limit.Finish, ticket, 300*time.Millisecond, 10, 0); !errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("%s lost: error %v", name, err)
		}
		if name == "the reply" {
			lose(false)
		}
		if done, left := b.finish(ticket, 10, 0); done || !slices.Equal(left, []int64{90, 2}) {
			t.Errorf("after %s was lost: settled %t, %v left; want false, 90 and 2", name, done, left)
		}
	}
	if got := b.counter("tidegate_ambiguous_total"); got != 2 {
		t.Errorf("ambiguous_total is %v, want 2", got)
	}
}

// TestLostGrantHoldsOneSlot: a slot whose grant was lost is held once; under its request_id the client gets
// the same decision when it asks again, through any store, and nothing more is charged.
func TestLostGrantHoldsOneSlot(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 300 * time.Millisecond})
	other := newBench(t, remote.Config{Addr: server.Addr()})
	l, calls := hourly("rate", 100, limit.StringState), slotsOf("calls", 5)
	b.mustAsk(charge(l, "a", 0))
	ask := func(b *bench, id string, wait time.Duration) (*limit.Decision, error) {
		d := new(limit.Decision)
		r := limit.Request{
			Charges: []limit.Charge{charge(l, "a", 1), charge(calls, "a", 1)}, ID: id, Life: time.Hour,
			Grant: "rl:{rate:a}:~request:x", GrantTTL: time.Minute, Deadline: time.Now().Add(wait),
		}
		b.store.Decide(t.Context(), []limit.Request{r}, []*limit.Decision{d})
		d.Conclude()
		return d, d.Err
	}
	proxy.DropReplies(true)
	if _, err := ask(b, "FIRST", 300*time.Millisecond); !errors.Is(err, limit.ErrUnavailable) {
		t.Fatalf("with lost replies: %v", err)
	}
	proxy.DropReplies(false)
	for i, store := range []*bench{b, other, b} {
		d, err := ask(store, fmt.Sprint("AGAIN", i), 10*time.Second)
		if err != nil || d.Err != nil || !d.Allowed || d.ID != "FIRST" || d.Verdicts[0].Mark == 0 {
			t.Fatalf("asked again: %+v, %v; want the first answer", d, err)
		}
	}
	d := other.mustAsk(charge(l, "a", 0), charge(calls, "a", 0))
	if d.Verdicts[0].Remaining != 99 || d.Verdicts[1].Remaining != 4 {
		t.Errorf("%d and %d are left, want 99 and 4", d.Verdicts[0].Remaining, d.Verdicts[1].Remaining)
	}
	checkTimesToLive(t, server)
}

// TestFinishWithoutMemory: when Redis takes no more writes, what is given back still is, and what is owed is
// charged, while nothing new is granted.
func TestFinishWithoutMemory(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		l, calls := hourly("memory", 100, state), slotsOf("calls", 3)
		charges := []limit.Charge{charge(l, "a", 30), charge(calls, "a", 1)}
		less, more := b.take(charges...), b.take(charges...)
		server.Do(t, "CONFIG", "SET", "maxmemory", "1")
		defer server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		_, err := b.ask(5*time.Second, charges...)
		var failure *limit.StoreError
		if !errors.As(err, &failure) || failure.Failure != limit.FailureMemory {
			t.Errorf("Decide: %v, want the failure %q", err, limit.FailureMemory)
		}
		if done, left := b.finish(less, 10, 0); !done || !slices.Equal(left, []int64{60, 2}) {
			t.Errorf("less: settled %t, %v left", done, left)
		}
		if _, err := b.settle(limit.Renew, more, 5*time.Second); err != nil {
			t.Errorf("renew: %v", err)
		}
		if done, left := b.finish(more, 50, 0); !done || !slices.Equal(left, []int64{40, 3}) {
			t.Errorf("more: settled %t, %v left", done, left)
		}
		if done, _ := b.finish(more, 50, 0); done {
			t.Error("settled twice")
		}
		checkTimesToLive(t, server)
	})
}

// TestFinishAfterScriptFlush: a server that has forgotten the scripts is given their text.
func TestFinishAfterScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr()})
	l, calls := hourly("flush", 100, limit.HashState), slotsOf("calls", 2)
	for i := range int64(3) {
		ticket := b.take(charge(l, "a", 10), charge(calls, "a", 1))
		server.Do(t, "SCRIPT", "FLUSH")
		if done, left := b.finish(ticket, 5, 0); !done || !slices.Equal(left, []int64{95 - 5*i, 2}) {
			t.Errorf("round %d: settled %t, %v left", i, done, left)
		}
	}
}

// TestSettlementPastItsDeadline: what waited in front of a frozen Redis settles nothing when it runs again.
func TestSettlementPastItsDeadline(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr(), Timeout: 100 * time.Millisecond})
	l := hourly("late", 100, limit.HashState)
	ticket := b.take(charge(l, "a", 10))
	b.finish(b.take(charge(l, "warm", 1)), 1)
	server.Pause()
	_, err := b.settle(limit.Finish, ticket, 50*time.Millisecond, 0)
	server.Resume()
	if !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 90 {
		t.Errorf("%d are left, want 90", d.Verdicts[0].Remaining)
	}
	if done, left := b.finish(ticket, 0); !done || left[0] != 100 {
		t.Errorf("settled again: %t, %v left", done, left)
	}
}
