package remote

import (
	"context"
	"errors"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Settle does what the settlement says with the charges of its ticket, in one atomic step. Doing it
// again changes nothing. It is limit.ErrExpired when the ticket or, for Renew, a slot has expired, a
// limit.InvalidError when a debt could never be paid, and a limit.StoreError when there is no answer:
// then it may or may not be done.
func (s *Store) Settle(ctx context.Context, settlement *limit.Settlement) (answer limit.Settled, err error) {
	refused := s.guarded(func() error {
		answer, err = s.settle(ctx, settlement)
		var failure *limit.StoreError
		switch {
		case errors.As(err, &failure) && failure.Failure == limit.FailureTimeout:
			// It may have to rewrite a long log: that it takes its time says nothing of other calls.
			return &limit.StoreError{Failure: limit.FailureOverload, Err: err}
		case errors.Is(err, limit.ErrUnavailable):
			return err
		}
		return nil
	})
	if err == nil {
		err = refused
	}
	return answer, err
}

// Forget makes the state under the charge's key as if it were never used, but for what is out on lease. It is
// a limit.StoreError when there is no answer: then it may or may not be done, and doing it again is safe.
func (s *Store) Forget(ctx context.Context, charge limit.Charge) error {
	return s.guarded(func() error {
		if charge.Settings.Hold > 0 {
			return s.forgetLeased(ctx, &charge)
		}
		if err := s.client.Del(ctx, charge.Key).Err(); err != nil {
			return s.failed(err, false)
		}
		return nil
	})
}

func (s *Store) forgetLeased(ctx context.Context, charge *limit.Charge) error {
	for {
		text, err := s.exchange(ctx, &s.scripts.Load().forget, false, func(c *call) { c.packForget(0, charge, s.clock.at) })
		if err != nil {
			return err
		}
		outside, err := unpackForget(text)
		switch {
		case err != nil:
			return s.failed(err, false)
		case !outside:
			return nil
		case ctx.Err() != nil:
			return &limit.StoreError{Failure: limit.FailureTimeout, Err: ctx.Err()}
		}
	}
}

// guarded makes a call unless the gate refuses, and tells it how the call ended. A panic is a failure:
// a gate that is never told might stay half open for ever.
func (s *Store) guarded(call func() error) (err error) {
	report, refused := s.cfg.Gate.Allow()
	if refused != nil {
		return refused
	}
	err = &limit.StoreError{Failure: limit.FailureOther, Err: errors.New("the call panicked")}
	defer func() { report(err) }()
	err = call()
	return err
}

func (s *Store) settle(ctx context.Context, settlement *limit.Settlement) (limit.Settled, error) {
	ctx, cancel := context.WithDeadline(ctx, settlement.Deadline)
	defer cancel()
	for {
		text, err := s.exchange(ctx, &s.scripts.Load().settle, true, func(c *call) { c.packSettlement(0, settlement, s.clock.at) })
		if err != nil {
			return limit.Settled{}, err
		}
		answer, again, err := unpackSettled(text, settlement)
		switch {
		case errors.Is(err, errReply):
			return limit.Settled{}, s.failed(err, true)
		case errors.Is(err, limit.ErrWrongType):
			s.metrics.errors.WithLabelValues(string(limit.FailureWrongType)).Inc()
			return limit.Settled{}, err
		case err != nil || again == 0:
			return answer, err
		case again == codeExpired:
			s.metrics.expired.Inc()
		}
		if err := ctx.Err(); err != nil {
			return limit.Settled{}, &limit.StoreError{Failure: limit.FailureTimeout, Err: err}
		}
	}
}

// exchange makes one call of a script by itself, which charges something or not, and returns its reply. It
// returns when ctx ends; the call may go on.
func (s *Store) exchange(ctx context.Context, script *script, charging bool, pack func(*call)) (string, error) {
	start := time.Now()
	var passage passage
	text, err := s.outlive(ctx, func(long context.Context) (string, error) {
		if err := s.ready(long); err != nil {
			return "", err
		}
		c := s.calls.Get().(*call)
		defer s.calls.Put(c)
		pack(c)
		return s.run(long, script, c, &passage)
	})
	left := !passage.withdraw()
	if left {
		s.metrics.calls.Inc()
		s.metrics.duration.Observe(time.Since(start).Seconds())
		s.metrics.batch.Observe(1)
	}
	if err != nil {
		deadline, _ := ctx.Deadline()
		inTime := passage.sentBy(deadline.Add(-s.cfg.Timeout / 2))
		return "", s.failed(s.blame(err, start, inTime), left && charging)
	}
	return text, nil
}

// outlive returns when ctx ends, but lets the call go on. One that gets no turn before ctx ends is not
// made.
func (s *Store) outlive(ctx context.Context, call func(context.Context) (string, error)) (string, error) {
	select {
	case s.queue.turns <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	type end struct {
		text string
		err  error
	}
	ended := make(chan end, 1)
	s.underWay.Go(func() {
		defer s.yield()
		long, cancel := s.unhurried()
		defer cancel()
		text, err := call(long)
		ended <- end{text, err}
	})
	select {
	case e := <-ended:
		return e.text, e.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// yield gives a turn back, to a flight if one waits for it.
func (s *Store) yield() {
	<-s.queue.turns
	s.tick()
}
