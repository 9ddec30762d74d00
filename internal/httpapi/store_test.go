package httpapi_test

import (
	"context"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// fakeStore decides with the arithmetic of package limit at a time that stands still until the
// test moves it.
type fakeStore struct {
	mu     sync.Mutex
	now    int64 // µs
	states map[string]limit.BucketState
	calls  int
	asked  int                   // requests in all calls
	err    error                 // answer of every call
	change func(*limit.Decision) // the last word on every decision
	hold   chan struct{}         // when set, calls wait until it is closed or ctx ends
	held   chan struct{}         // receives once for every call that waits

	settled limit.Settled      // answer of Settle
	settles []limit.Settlement // what Settle was asked
}

func newStore() *fakeStore {
	return &fakeStore{now: 1_700_000_000_000_000, states: map[string]limit.BucketState{}, held: make(chan struct{}, 100)}
}

func (s *fakeStore) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += d.Microseconds()
}

func (s *fakeStore) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	if s.hold != nil {
		s.held <- struct{}{}
		select {
		case <-s.hold:
		case <-ctx.Done():
			for _, d := range decisions {
				d.Err = limit.ErrUnavailable
			}
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	for i := range requests {
		if decisions[i].Err = s.err; s.err != nil {
			continue
		}
		s.asked++
		s.decide(&requests[i], decisions[i])
		if s.change != nil {
			s.change(decisions[i])
		}
	}
}

func (s *fakeStore) decide(r *limit.Request, d *limit.Decision) {
	d.Tier = limit.TierRedis
	pass := true
	for _, c := range r.Charges {
		state, wait, _ := c.Settings.Bucket.Decide(s.states[c.Key], s.now, c.Cost)
		s.states[c.Key] = state
		pass = pass && (wait == 0 || c.Limit.Shadow)
		d.Verdicts = append(d.Verdicts, limit.Verdict{
			Limit: c.Limit, Settings: c.Settings, Allowed: wait == 0, Known: true,
			RetryAfter: time.Duration(wait) * time.Microsecond,
		})
	}
	for i, c := range r.Charges {
		b, v, cost := &c.Settings.Bucket, &d.Verdicts[i], int64(0)
		if pass && v.Allowed {
			cost = c.Cost
		}
		state := b.Charge(s.states[c.Key], cost)
		v.Remaining = state.Tokens
		v.ResetAfter = time.Duration(b.TimeToFull(state)) * time.Microsecond
		s.states[c.Key] = state
	}
}

func (s *fakeStore) Settle(_ context.Context, settlement *limit.Settlement) (limit.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settles = append(s.settles, *settlement)
	return s.settled, s.err
}

func (s *fakeStore) Forget(context.Context, limit.Charge) error { return nil }
