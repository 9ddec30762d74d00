package remote

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Gate is the circuit breaker around the calls. It is safe for concurrent use.
type Gate interface {
	// Allow returns an error, which is limit.ErrUnavailable, when no call may be made. Else done must be
	// called once, with how the call ended.
	Allow() (done func(error), err error)
}

type alwaysOpen struct{}

func (alwaysOpen) Allow() (done func(error), err error) { return func(error) {}, nil }

// flight is one call of the script that decides, with the questions that it carries: none before it has
// been boarded.
type flight struct {
	passage  passage
	departed time.Time // when it was reserved, and from boarding on when it was boarded; guarded by the queue's mu until it lands
	report   func(error)

	items []*item // in the order in which they are asked
	open  int     // how many of them are waited for; guarded by the queue's mu until it is over
	over  bool    // nobody waits any more: it has ended, or was abandoned; guarded by the queue's mu

	// What is asked: copies, since callers may leave before they are read.
	requests []limit.Request
	charges  []limit.Charge
	last     time.Time // when the last wait ends
	charging bool      // some charge costs something
}

// board takes an item along.
func (f *flight) board(i *item) {
	from := len(f.charges)
	f.charges = append(f.charges, i.request.Charges...)
	for _, c := range f.charges[from:] {
		f.charging = f.charging || c.Cost > 0
	}
	request := *i.request
	request.Charges = f.charges[from:len(f.charges):len(f.charges)]
	request.Orders = slices.Clone(request.Orders)
	if i.again { // what was said of leases is said once
		request.Orders, i.again = nil, false
	}
	f.requests = append(f.requests, request)
	f.items = append(f.items, i)
	f.open++
	if i.deadline.After(f.last) {
		f.last = i.deadline
	}
}

// size returns how much of a call's room is taken.
func (f *flight) size() int {
	size := len(f.charges)
	for i := range f.requests {
		size += len(f.requests[i].Orders)
	}
	return size
}

// depart asks the gate, and boards the flight or tells those who wait that no call is made. It reports whether
// one is to be made.
func (s *Store) depart(f *flight) bool {
	if s.queue.crowded.Load() {
		// Callers that are about to ask go along: those that can run do so first.
		runtime.Gosched()
	}
	report, refused := s.cfg.Gate.Allow()
	if refused != nil {
		s.queue.refuse(refused)
		return false
	}
	if !s.queue.board(f, report) {
		report(&limit.StoreError{Failure: limit.FailureCanceled, Err: context.Canceled})
		return false
	}
	return true
}

// fly lets the flight depart, makes its call and, while others wait at its end, the next one. That leaves before
// the answers of the last one are handed out.
func (s *Store) fly(f *flight) { s.flyOn(f, s.depart(f)) }

// flyOn is fly with a flight that has departed, or was not let.
func (s *Store) flyOn(f *flight, departed bool) {
	for {
		ctx, cancel := s.unhurried()
		next, deliver := s.make(ctx, f, departed)
		cancel()
		if next == nil {
			deliver()
			return
		}
		s.underWay.Go(deliver)
		f, departed = next, s.depart(next)
	}
}

// escort makes the flight's call in its caller's own goroutine, which spares a lone question the way from one to
// another and back. The call ends with the caller's wait, so that there must be a connection that is ready. When
// somebody aboard may wait for longer, the call is made as any other.
func (s *Store) escort(f *flight, wait time.Time) {
	departed := s.depart(f)
	if departed && f.last.After(wait) {
		s.underWay.Go(func() { s.flyOn(f, true) })
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), wait)
	next, deliver := s.make(ctx, f, departed)
	cancel()
	if next != nil {
		s.underWay.Go(func() { s.fly(next) })
	}
	deliver()
}

// warm reports whether a connection is ready.
func (s *Store) warm() bool { return s.clock.known() && s.client.PoolStats().IdleConns > 0 }

// make makes the call of a flight that has departed. It returns the flight that leaves in its place, if any, and
// what hands out the answers of this one.
func (s *Store) make(ctx context.Context, f *flight, departed bool) (next *flight, deliver func()) {
	if !departed {
		return s.queue.land(f, time.Now(), false), func() {}
	}
	text, err := s.carry(ctx, f)
	arrived, answered := time.Now(), err == nil
	if s.queue.end(f) {
		err = s.conclude(f, err)
	}
	return s.queue.land(f, arrived, answered), func() { s.deliver(f, text, err, arrived) }
}

// carry makes the flight's call.
func (s *Store) carry(ctx context.Context, f *flight) (string, error) {
	if err := s.ready(ctx); err != nil {
		return "", err
	}
	c := s.calls.Get().(*call)
	defer s.calls.Put(c)
	c.pack(0, f.requests, s.clock.at)
	return s.run(ctx, &s.decider, c, &f.passage)
}

// conclude tells the gate how the flight ended, and counts err. It returns what its questions are
// answered instead of err.
func (s *Store) conclude(f *flight, err error) error {
	if err != nil {
		left := !f.passage.withdraw()
		inTime := f.passage.sentBy(f.last.Add(-s.cfg.Timeout / 2))
		err = s.failed(s.blame(err, f.last.Add(-s.cfg.Timeout), inTime), left && f.charging)
	}
	f.report(err)
	return err
}

// part answers items whose waits have ended, because of why. Flights that nobody waits for any more are
// withdrawn, if they are not sent yet, and the gate is told.
func (s *Store) part(gone []*item, abandoned []*flight, failure limit.Failure, why error) {
	for _, f := range abandoned {
		_ = s.conclude(f, why) // nobody is left to be told
	}
	for _, i := range gone {
		i.fail(&limit.StoreError{Failure: failure, Err: why})
	}
}

// deliver hands out the answers of a flight that has ended with text, or with err. What the script left
// alone is asked again while time lasts.
func (s *Store) deliver(f *flight, text string, err error, arrived time.Time) {
	if !f.passage.withdraw() {
		s.metrics.calls.Inc()
		s.metrics.duration.Observe(arrived.Sub(f.departed).Seconds())
		s.metrics.batch.Observe(float64(len(f.items)))
	}
	var said remarks
	if err == nil {
		if said, err = unpack(text, f.requests, f.decisions()); err != nil {
			err = s.failed(err, f.charging)
		}
	}
	if said.took > 0 {
		s.queue.busy(said.took, f.size())
	}
	again := f.again(&said, arrived)
	s.metrics.expired.Add(float64(len(said.expired)))
	for _, i := range f.items {
		switch {
		case i.left || i.again:
		case err != nil:
			i.fail(err)
		default:
			if errors.Is(i.decision.Err, limit.ErrWrongType) {
				s.metrics.errors.WithLabelValues(string(limit.FailureWrongType)).Inc()
			}
			i.answered()
		}
	}
	if len(again) > 0 {
		if next := s.queue.rejoin(again, time.Now()); next != nil {
			s.underWay.Go(func() { s.fly(next) })
		}
	}
}

// decisions returns where the answers go: nowhere, of those who have left.
func (f *flight) decisions() []*limit.Decision {
	decisions := make([]*limit.Decision, len(f.items))
	for i, item := range f.items {
		if decisions[i] = item.decision; item.left {
			decisions[i] = new(limit.Decision)
		}
	}
	return decisions
}

// again returns the items that the script has left alone although they are not late by our clock: its
// reply has set the clock right. The others of those that it left alone are answered that they are late.
func (f *flight) again(said *remarks, now time.Time) []*item {
	var again []*item
	for _, at := range append(said.expired, said.outside...) {
		i := f.items[at]
		if i.deadline.After(now) && !i.left {
			i.again = true
			again = append(again, i)
		} else if !i.left {
			i.decision.Err = &limit.StoreError{Failure: limit.FailureTimeout, Err: context.DeadlineExceeded}
		}
	}
	return again
}
