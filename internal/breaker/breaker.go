// Package breaker stands between the path of a request and the shared store: a circuit breaker
// (gobreaker) for the store's calls, and the degradation policy that answers while they fail.
// It starts no goroutine.
package breaker

import (
	"context"
	"errors"

	"github.com/tidegate/tidegate/internal/limit"
)

// Shared is the store whose calls may fail.
type Shared interface {
	// Decide fills decisions. The Err of each that got no answer is limit.ErrUnavailable.
	Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision)
	Settle(ctx context.Context, s *limit.Settlement) (limit.Settled, error)
	Forget(ctx context.Context, charge limit.Charge) error
}

// Share decides with what this node may hand out by itself, and settles what it has decided.
type Share interface {
	Decide(requests []limit.Request, decisions []*limit.Decision)
	Settle(ctx context.Context, s *limit.Settlement) (limit.Settled, error)
}

// Store answers every request: from the shared store while that works, by each limit's policy
// otherwise. Safe for concurrent use.
type Store struct {
	shared Shared
	share  Share
}

// New returns a Store over both.
func New(shared Shared, share Share) *Store { return &Store{shared, share} }

// Decide fills every decision: those that the shared store did not answer by the policy of their
// limits.
func (s *Store) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	s.shared.Decide(ctx, requests, decisions)
	for i, d := range decisions {
		if errors.Is(d.Err, limit.ErrUnavailable) { // any other error is the question's own
			s.degrade(&requests[i], d, d.Err)
		}
	}
}

// Settle does what the settlement says: in this process when its ticket was given here without the
// shared store, else in that. Without an answer the error is limit.ErrUnavailable, and asking again is
// safe.
func (s *Store) Settle(ctx context.Context, settlement *limit.Settlement) (limit.Settled, error) {
	if settlement.Ticket.Home != 0 {
		return s.share.Settle(ctx, settlement)
	}
	return s.shared.Settle(ctx, settlement)
}

// Forget drops the state under the charge's key.
func (s *Store) Forget(ctx context.Context, charge limit.Charge) error {
	return s.shared.Forget(ctx, charge)
}
