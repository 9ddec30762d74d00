// Package breaker stands between the path of a request and the shared store: a circuit breaker
// (gobreaker) around the store's calls, and the degradation policy that answers while they fail.
// It starts no goroutine.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/tidegate/tidegate/internal/limit"
)

// Shared is the store whose calls may fail.
type Shared interface {
	// Decide fills decisions. When it returns an error, those with a Tier are answered all the same.
	Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) error
	Settle(ctx context.Context, s *limit.Settlement) (limit.Settled, error)
	Forget(ctx context.Context, charge limit.Charge) error
}

// Share decides with what this node may hand out by itself, and settles what it has decided.
type Share interface {
	Decide(requests []limit.Request, decisions []*limit.Decision)
	Settle(ctx context.Context, s *limit.Settlement) (limit.Settled, error)
}

// Config holds what a Store is made of. Shared, Share, Logger and Registry are required.
type Config struct {
	Shared   Shared
	Share    Share
	Failures uint32        // see Store; 0 means 5
	Window   time.Duration // see Store; 0 means 10s
	OpenFor  time.Duration // how long the breaker stays open before it lets one call through; 0 means 2s
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Store answers every request: from the shared store while that works, by each limit's policy
// otherwise. The breaker counts calls, not requests. It opens when the last Failures calls all
// failed, or when within Window at least Failures failed and they were at least half of all. After
// OpenFor it lets one call through, which closes it or opens it again. Safe for concurrent use.
type Store struct {
	shared Shared
	share  Share
	gate   *gobreaker.TwoStepCircuitBreaker[struct{}]
	cause  atomic.Pointer[error] // the failure that was counted last; nil: none yet
}

// neutralFailures say nothing against the store; every other kind of failure of a call does. A wrong
// type fails its own requests only, a caller that went away says nothing of the store, and what was
// refused here, or found no connection free while others got answers, was no call. Denials are no failures, and NOSCRIPT is mended within the call.
var neutralFailures = []limit.Failure{limit.FailureWrongType, limit.FailureCanceled, limit.FailureOverload, limit.FailureRefused}

// neutral reports whether the breaker leaves err out of its count.
func neutral(err error) bool {
	var failure *limit.StoreError
	if errors.As(err, &failure) {
		return slices.Contains(neutralFailures, failure.Failure)
	}
	return errors.Is(err, context.Canceled)
}

// buckets is how many steps the window rolls in.
const buckets = 10

// New returns a Store with a closed breaker. It is an error when a metric is already registered.
func New(cfg Config) (*Store, error) {
	if cfg.Failures == 0 {
		cfg.Failures = 5
	}
	if cfg.Window <= 0 {
		cfg.Window = 10 * time.Second
	}
	if cfg.OpenFor <= 0 {
		cfg.OpenFor = 2 * time.Second
	}
	state := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidegate_breaker_state",
		Help: "State of the circuit breaker around Redis: 0 closed, 1 half-open, 2 open.",
	})
	if err := cfg.Registry.Register(state); err != nil {
		return nil, fmt.Errorf("breaker: register metrics: %w", err)
	}
	s := &Store{shared: cfg.Shared, share: cfg.Share}
	var streak uint32 // failures since the last success; guarded by the gate's lock
	s.gate = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         "redis",
		MaxRequests:  1,
		Interval:     cfg.Window,
		BucketPeriod: max(time.Millisecond, cfg.Window/buckets),
		Timeout:      cfg.OpenFor,
		IsExcluded:   neutral,
		// Asked about every result that counts. The gate's own count of failures in a row forgets
		// those that are older than the window.
		IsSuccessful: func(err error) bool {
			if err == nil {
				streak = 0
				return true
			}
			streak++
			s.cause.Store(&err)
			return false
		},
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return streak >= cfg.Failures ||
				c.TotalFailures >= cfg.Failures && c.TotalFailures >= c.TotalSuccesses
		},
		// Called under the breaker's lock: it must not ask the breaker anything.
		OnStateChange: func(_ string, from, to gobreaker.State) {
			state.Set(float64(to))
			attrs := []slog.Attr{slog.String("from", from.String())}
			if to == gobreaker.StateOpen {
				attrs = append(attrs, slog.Any("cause", *s.cause.Load()))
			}
			cfg.Logger.LogAttrs(context.Background(), levelOf(from, to), "circuit breaker "+to.String(), attrs...)
		},
	})
	return s, nil
}

// levelOf makes one line of an outage and one of its end; the trials in between are for debugging.
func levelOf(from, to gobreaker.State) slog.Level {
	switch {
	case from == gobreaker.StateClosed:
		return slog.LevelWarn
	case to == gobreaker.StateClosed:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// State returns the breaker's state: closed, half-open or open.
func (s *Store) State() string { return s.gate.State().String() }

// errRefused is the cause of a request that the breaker did not let through.
var errRefused = errors.New("the circuit breaker is open")

// Cause returns the failure that was counted last; nil when there was none, and while the breaker
// is closed.
func (s *Store) Cause() error {
	if cause := s.cause.Load(); cause != nil && s.gate.State() != gobreaker.StateClosed {
		return *cause
	}
	return nil
}

// refusal says why no call is made: what the last one that counted met.
func (s *Store) refusal() error {
	if cause := s.cause.Load(); cause != nil {
		return fmt.Errorf("%w; the last call met: %w", errRefused, *cause)
	}
	return errRefused
}

// Do makes one call through the breaker. While it is open the call is not made, and the error is
// a limit.StoreError.
func (s *Store) Do(call func() error) (err error) {
	done, refused := s.gate.Allow()
	if refused != nil {
		return &limit.StoreError{Failure: limit.FailureRefused, Err: s.refusal()}
	}
	// A done that is never called would keep a half-open breaker half-open for ever: it must be
	// called on a panic too, which counts as a failure.
	finished := false
	defer func() {
		if !finished {
			err = &limit.StoreError{Failure: limit.FailureOther, Err: errors.New("the call panicked")}
		}
		done(err)
	}()
	err = call()
	finished = true
	return err
}

// Decide fills every decision: those that the shared store did not answer by the policy of their
// limits. It never fails as a whole.
func (s *Store) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) error {
	err := s.Do(func() error { return s.shared.Decide(ctx, requests, decisions) })
	if err == nil {
		for i, d := range decisions {
			if errors.Is(d.Err, limit.ErrUnavailable) { // any other error is the question's own
				s.degrade(&requests[i], d, d.Err)
			}
		}
		return nil
	}
	for i, d := range decisions {
		if d.Tier == limit.TierNone {
			s.degrade(&requests[i], d, err)
		}
	}
	return nil
}

// Settle does what the settlement says: in this process when its ticket was given here without the
// shared store, else in that, through the breaker. Without an answer the error is limit.ErrUnavailable,
// and asking again is safe.
func (s *Store) Settle(ctx context.Context, settlement *limit.Settlement) (answer limit.Settled, err error) {
	if settlement.Ticket.Home != 0 {
		return s.share.Settle(ctx, settlement)
	}
	failed := s.Do(func() error {
		answer, err = s.shared.Settle(ctx, settlement)
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
	if failed != nil {
		return limit.Settled{}, failed
	}
	return answer, err
}

// Forget drops the state under the charge's key, through the breaker.
func (s *Store) Forget(ctx context.Context, charge limit.Charge) error {
	return s.Do(func() error { return s.shared.Forget(ctx, charge) })
}
