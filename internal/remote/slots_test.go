package remote

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestDeadHoldersSlotsFreeThemselves: two clients die with a slot each; after its ttl each slot is free.
func TestDeadHoldersSlotsFreeThemselves(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(2, 5*oneSecond))
	w.passes(true, on(l, 1))
	w.now += oneSecond
	w.passes(true, on(l, 1))
	w.now += 4*oneSecond - 1
	d := w.passes(false, on(l, 1))
	if got := d.RetryAfter; got != time.Microsecond {
		t.Errorf("retry after %v, want 1µs", got)
	}
	w.now++
	w.passes(true, on(l, 1))
	w.passes(false, on(l, 1))
}

// TestSecondReleaseDoesNothing: a slot that was released twice is free once.
func TestSecondReleaseDoesNothing(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(1, oneHour))
	_, a := w.take(on(l, 1))
	if first, twice := w.finish(a), w.finish(a); !first || twice {
		t.Errorf("released: %t, then %t", first, twice)
	}
	_, b := w.take(on(l, 1))
	w.finish(a)
	w.passes(false, on(l, 1))
	w.finish(b)
	w.passes(true, on(l, 1))
}

// TestTwoSlotsOfACallAreReleasedOnce: a call that holds a slot of two limits leaves both as it found them.
func TestTwoSlotsOfACallAreReleasedOnce(t *testing.T) {
	w := newCases(t)
	global, route := w.must(limit.NewConcurrency(50, oneHour)), w.must(limit.NewConcurrency(10, oneHour))
	route.Name = "route"
	var held []*limit.Ticket
	for range 60 {
		_, ticket := w.take(on(global, 1), on(route, 1))
		if held = append(held, ticket); len(held) > 7 {
			w.finish(held[0])
			w.finish(held[0])
			held = held[1:]
		}
		if g, r := w.left(global), w.left(route); g != 50-int64(len(held)) || r != 10-int64(len(held)) {
			t.Fatalf("%d calls are under way: %d of 50 and %d of 10 left", len(held), g, r)
		}
	}
	for _, ticket := range held {
		w.finish(ticket)
	}
	if g, r := w.left(global), w.left(route); g != 50 || r != 10 {
		t.Errorf("nothing is under way: %d of 50 and %d of 10 left", g, r)
	}
	if n := w.do("EXISTS", on(global, 0).Key, on(route, 0).Key); n != int64(0) {
		t.Errorf("%d keys are left", n)
	}
}

// TestDeadHoldersDoNotPileUp: clients that start, take slots and die again and again leave no more members
// than the limit allows to be held, and those that expired since the last write.
func TestDeadHoldersDoNotPileUp(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(20, 10*oneSecond))
	for range 500 {
		for range 3 {
			w.take(on(l, 1))
		}
		w.now += 2 * oneSecond
		if n := w.do("ZCARD", on(l, 0).Key).(int64); n > 20 {
			t.Fatalf("the set has %d members", n)
		}
	}
}

// TestExpiredHoldersAreRemovedInSteps: a write removes 1,000 of many that have expired, in both stores, and
// a clock that is set back finds the same in both.
func TestExpiredHoldersAreRemovedInSteps(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(10_000, oneHour))
	var requests []limit.Request
	for range 100 {
		requests = append(requests, w.question(on(l, 1)))
	}
	for range 25 {
		for i := range requests {
			w.ids++
			requests[i].ID = fmt.Sprintf("ID%d", w.ids)
		}
		w.both(requests...)
		w.now++
	}
	w.now += oneHour / 2
	w.take(on(l, 1))
	w.now += oneHour / 2
	for _, want := range []int64{1502, 503} {
		w.passes(true, on(l, 1))
		if n := w.do("ZCARD", on(l, 0).Key); n != want {
			t.Errorf("the set has %d members, want %d", n, want)
		}
	}
	w.now -= oneHour / 4
	if left := w.left(l); left != 10_000-503 {
		t.Errorf("%d are left, want %d", left, 10_000-503)
	}
	list := w.both(limit.Request{Charges: []limit.Charge{on(l, 0)}, List: true})[0].Lists[0]
	if len(list) != 100 {
		t.Errorf("%d holders are listed, want 100", len(list))
	}
	w.now -= 2 * oneHour
	w.passes(true, on(l, 1)) // cuts them all
	w.now += oneHour - 1
	if left := w.left(l); left != 10_000-504 {
		t.Errorf("%d are left, want %d", left, 10_000-504)
	}
	w.now++
	if left := w.left(l); left != 10_000 {
		t.Errorf("a ttl after the clock was set back %d are left, want 10,000", left)
	}
}

// TestNamelessSlotsStayApart: slots without an id, at one instant with others that come and go, are each one.
func TestNamelessSlotsStayApart(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(10, oneHour))
	nameless := limit.Request{Charges: []limit.Charge{on(l, 1)}}
	_, a := w.take(on(l, 1))
	_, b := w.take(on(l, 1))
	w.both(nameless)
	w.finish(a)
	w.both(nameless)
	w.finish(b)
	w.both(nameless, nameless)
	if left := w.left(l); left != 6 {
		t.Errorf("with 4 slots held %d of 10 are left", left)
	}
}

// TestDeadHoldersAreForgottenAtOnce: when no holder is live, a write leaves nothing of however many.
func TestDeadHoldersAreForgottenAtOnce(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(10_000, oneHour))
	for range 15 {
		var requests []limit.Request
		for range 100 {
			requests = append(requests, w.question(on(l, 1)))
		}
		w.both(requests...)
	}
	w.now += oneHour
	delete(w.dies, on(l, 0).Key) // Redis has not dropped it yet
	w.passes(true, on(l, 1))
	if n := w.do("ZCARD", on(l, 0).Key); n != int64(1) {
		t.Errorf("the set has %d members, want 1", n)
	}
}

// TestManyTTLsInOneCall: requests of one call that bring different ttls, as sidecars of two versions might,
// leave what they would have left one by one.
func TestManyTTLsInOneCall(t *testing.T) {
	w := newCases(t)
	l := w.must(limit.NewConcurrency(10, oneHour))
	w.passes(true, on(l, 1))
	w.passes(true, on(l, 1))
	var requests []limit.Request
	for _, seconds := range []int64{10, 100, 60, 10, 300, 200} {
		settings := w.must(limit.NewConcurrency(10, seconds*oneSecond)).Settings
		charge := limit.Charge{Limit: l, Settings: &settings, Key: on(l, 0).Key, Cost: 1}
		look := charge
		look.Cost = 0
		requests = append(requests, w.question(charge), limit.Request{Charges: []limit.Charge{look}, List: true})
	}
	w.both(requests[:6]...)
	w.both(requests[6:]...)
	for _, tt := range []struct{ after, left int64 }{{10*oneSecond - 1, 2}, {1, 8}, {190*oneSecond - 1, 8}, {1, 10}} {
		w.now += tt.after
		if left := w.left(l); left != tt.left {
			t.Errorf("at %d: %d are left, want %d", w.now, left, tt.left)
		}
	}
}

// TestRenewedSlotsLast: a renewed slot is held for another ttl; one that has expired or was released is
// renewed no more, and then neither are the others of its ticket.
func TestRenewedSlotsLast(t *testing.T) {
	w := newCases(t)
	long, short := w.must(limit.NewConcurrency(1, 60*oneSecond)), w.must(limit.NewConcurrency(1, 10*oneSecond))
	short.Name = "short"
	_, a := w.take(on(long, 1), on(short, 1))
	renew := func(t *limit.Ticket) error {
		_, err := w.settleBoth(&limit.Settlement{Act: limit.Renew, Ticket: t})
		return err
	}
	for range 5 {
		w.now += 9 * oneSecond
		if err := renew(a); err != nil {
			t.Fatal(err)
		}
	}
	w.passes(false, on(long, 1))
	w.passes(false, on(short, 1))
	w.now += 10 * oneSecond
	if err := renew(a); !errors.Is(err, limit.ErrExpired) {
		t.Errorf("renewed after one slot has expired: %v", err)
	}
	w.passes(true, on(short, 1))
	w.now += 50*oneSecond - 1
	w.passes(false, on(long, 1))
	w.now++
	_, b := w.take(on(long, 1))
	w.finish(b)
	if err := renew(b); !errors.Is(err, limit.ErrExpired) {
		t.Errorf("renewed after a finish: %v", err)
	}
	w.passes(true, on(long, 1))
}

// TestOldTicketsCutNoSlots: a ticket carries the ttl of its time; settling it shortens no slot that was
// granted with a longer one since, and renewing it gives it its own.
func TestOldTicketsCutNoSlots(t *testing.T) {
	w := newCases(t)
	old, l := w.must(limit.NewConcurrency(4, 10*oneSecond)), w.must(limit.NewConcurrency(4, oneHour))
	_, first := w.take(on(old, 1))
	_, other := w.take(on(old, 1))
	w.passes(true, on(l, 1))
	w.now += 5_000_000
	if _, err := w.settleBoth(&limit.Settlement{Act: limit.Renew, Ticket: first}); err != nil {
		t.Fatal(err)
	}
	w.finish(other)
	w.now += 9_999_999
	if left := w.left(l); left != 2 {
		t.Errorf("%d are left, want 2", left)
	}
	w.now++
	if left := w.left(l); left != 3 {
		t.Errorf("when the old slot has expired %d are left, want 3", left)
	}
	w.now += oneHour - 15_000_001
	if left := w.left(l); left != 3 {
		t.Errorf("before the new slot expires %d are left, want 3", left)
	}
}

// TestGiveBackLooksAtWhatWasCharged: a leaky bucket that the decision asked for nothing does not keep it
// from being given back.
func TestGiveBackLooksAtWhatWasCharged(t *testing.T) {
	w := newCases(t)
	free, paid := w.leaky(1, oneSecond, 5), w.leaky(1, oneSecond, 5)
	paid.Name = "paid"
	w.passes(true, on(free, 3))
	_, ticket := w.take(on(free, 0), on(paid, 2))
	w.passes(true, on(free, 1))
	give := func() bool {
		answer, err := w.settleBoth(&limit.Settlement{Act: limit.GiveBack, Ticket: ticket})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Done
	}
	w.now += 500_000
	if first, twice := give(), give(); !first || twice {
		t.Errorf("given back: %t, then %t", first, twice)
	}
	if left := w.left(paid); left != 5 {
		t.Errorf("%d are left, want 5", left)
	}
	_, ticket = w.take(on(paid, 2))
	w.passes(true, on(paid, 1))
	if give(); w.left(paid) != 2 {
		t.Errorf("%d are left, want 2: something was charged after it", w.left(paid))
	}
}
