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

// GateConfig holds what a Gate is made of. Logger and Registry are required.
type GateConfig struct {
	Failures uint32        // see Gate; 0 means 5
	Window   time.Duration // see Gate; 0 means 10s
	OpenFor  time.Duration // how long the breaker stays open before it lets one call through; 0 means 2s
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Gate is the circuit breaker around the calls of the shared store. It counts calls, not requests. It opens
// when the last Failures calls all failed, or when within Window at least Failures failed and they were
// at least half of all. After OpenFor it lets one call through, which closes it or opens it again. Safe
// for concurrent use.
type Gate struct {
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	cause   atomic.Pointer[error] // the failure that was counted last; nil: none yet
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

// NewGate returns a closed breaker. It is an error when a metric is already registered.
func NewGate(cfg GateConfig) (*Gate, error) {
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
	g := &Gate{}
	var streak uint32 // failures since the last success; guarded by the breaker's lock
	g.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         "redis",
		MaxRequests:  1,
		Interval:     cfg.Window,
		BucketPeriod: max(time.Millisecond, cfg.Window/buckets),
		Timeout:      cfg.OpenFor,
		IsExcluded:   neutral,
		// Asked about every result that counts. The breaker's own count of failures in a row forgets
		// those that are older than the window.
		IsSuccessful: func(err error) bool {
			if err == nil {
				streak = 0
				return true
			}
			streak++
			g.cause.Store(&err)
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
				attrs = append(attrs, slog.Any("cause", *g.cause.Load()))
			}
			cfg.Logger.LogAttrs(context.Background(), levelOf(from, to), "circuit breaker "+to.String(), attrs...)
		},
	})
	return g, nil
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
func (g *Gate) State() string { return g.breaker.State().String() }

// errRefused is the cause of a request that the breaker did not let through.
var errRefused = errors.New("the circuit breaker is open")

// Cause returns the failure that was counted last; nil when there was none, and while the breaker
// is closed.
func (g *Gate) Cause() error {
	if cause := g.cause.Load(); cause != nil && g.breaker.State() != gobreaker.StateClosed {
		return *cause
	}
	return nil
}

// refusal says why no call is made: what the last one that counted met.
func (g *Gate) refusal() error {
	if cause := g.cause.Load(); cause != nil {
		return fmt.Errorf("%w; the last call met: %w", errRefused, *cause)
	}
	return errRefused
}

// Allow lets a call through: done must be called once, with how it ended. While the breaker is open it lets
// none through, and the error is a limit.StoreError.
func (g *Gate) Allow() (done func(error), err error) {
	done, refused := g.breaker.Allow()
	if refused != nil {
		return nil, &limit.StoreError{Failure: limit.FailureRefused, Err: g.refusal()}
	}
	return done, nil
}
