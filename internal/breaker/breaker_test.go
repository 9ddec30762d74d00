package breaker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/breaker"
	"github.com/tidegate/tidegate/internal/limit"
)

// fakeShared is a shared store that does as the test says.
type fakeShared struct {
	mu      sync.Mutex
	calls   int // guarded by mu
	do      func([]limit.Request, []*limit.Decision) error
	settled []*limit.Settlement
}

func (f *fakeShared) Decide(_ context.Context, requests []limit.Request, decisions []*limit.Decision) error {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	return f.do(requests, decisions)
}

func (f *fakeShared) Forget(context.Context, limit.Charge) error { return f.do(nil, nil) }

func (f *fakeShared) Settle(_ context.Context, s *limit.Settlement) (limit.Settled, error) {
	f.settled = append(f.settled, s)
	return limit.Settled{Done: true, At: 2}, f.do(nil, nil)
}

func (f *fakeShared) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// fakeShare is a node's share of which the charges of the named limits are denied.
type fakeShare struct {
	denies  map[string]bool
	asked   []limit.Request
	settled []*limit.Settlement
	err     error // of every decision and settlement
}

func (f *fakeShare) Settle(_ context.Context, s *limit.Settlement) (limit.Settled, error) {
	f.settled = append(f.settled, s)
	return limit.Settled{At: 1}, f.err
}

func (f *fakeShare) Decide(requests []limit.Request, decisions []*limit.Decision) {
	f.asked = append(f.asked, requests...)
	for i := range requests {
		d := decisions[i]
		d.Tier, d.Err = limit.TierFallback, f.err
		if f.err != nil {
			continue
		}
		d.ID, d.At, d.Expires = requests[i].ID, 3, 4
		for _, c := range requests[i].Charges {
			d.Verdicts = append(d.Verdicts, limit.Verdict{
				Limit: c.Limit, Settings: c.Settings, Known: true, Allowed: !f.denies[c.Limit.Name], Remaining: 7,
			})
			if requests[i].List {
				d.Lists = append(d.Lists, []limit.Listed{{Cost: int64(len(c.Limit.Name))}})
			}
		}
	}
}

// gated makes the calls of a fakeShared through a gate, as the real store does.
type gated struct {
	*breaker.Gate
	next *fakeShared
}

func (g gated) do(call func() error) error {
	done, err := g.Allow()
	if err != nil {
		return err
	}
	err = call()
	done(err)
	return err
}

func (g gated) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	err := g.do(func() error { return g.next.Decide(ctx, requests, decisions) })
	for _, d := range decisions {
		if err != nil && d.Tier == limit.TierNone {
			d.Err = err
		}
	}
}

func (g gated) Forget(ctx context.Context, c limit.Charge) error {
	return g.do(func() error { return g.next.Forget(ctx, c) })
}

func (g gated) Settle(ctx context.Context, s *limit.Settlement) (answer limit.Settled, err error) {
	err = g.do(func() error {
		answer, err = g.next.Settle(ctx, s)
		return err
	})
	return answer, err
}

// bench is a Store over fakes, with what it logs.
type bench struct {
	*breaker.Store
	*breaker.Gate
	shared   *fakeShared
	share    *fakeShare
	registry *prometheus.Registry
	log      strings.Builder
}

// newBench makes a Store of which every call ends as *err says at the time.
func newBench(t *testing.T, cfg breaker.GateConfig, err *error) *bench {
	t.Helper()
	b := &bench{share: &fakeShare{}, registry: prometheus.NewRegistry()}
	b.shared = &fakeShared{do: func([]limit.Request, []*limit.Decision) error { return *err }}
	cfg.Registry, cfg.Logger = b.registry, slog.New(slog.NewTextHandler(&b.log, nil))
	gate, failed := breaker.NewGate(cfg)
	if failed != nil {
		t.Fatal(failed)
	}
	b.Gate, b.Store = gate, breaker.New(gated{gate, b.shared}, b.share)
	return b
}

// call asks about an open limit, so that no error comes back, and returns the breaker's state.
func (b *bench) call(t *testing.T) string {
	t.Helper()
	d := new(limit.Decision)
	if b.Decide(t.Context(), []limit.Request{request(limitOf("open", limit.FailOpen))}, []*limit.Decision{d}); d.Err != nil {
		t.Fatalf("Decide: %v", d.Err)
	}
	return b.State()
}

// wantState compares the state and the metric. Reading the state moves an open breaker whose time
// is over to half-open.
func (b *bench) wantState(t *testing.T, want string) {
	t.Helper()
	got := b.State()
	value := map[string]string{"closed": "0", "half-open": "1", "open": "2"}[want]
	text := "# HELP tidegate_breaker_state State of the circuit breaker around Redis: 0 closed, 1 half-open, 2 open.\n" +
		"# TYPE tidegate_breaker_state gauge\ntidegate_breaker_state " + value + "\n"
	if err := testutil.GatherAndCompare(b.registry, strings.NewReader(text)); got != want || err != nil {
		t.Errorf("the breaker is %s, want %s; metrics: %v", got, want, err)
	}
}

var (
	errTimeout  = &limit.StoreError{Failure: limit.FailureTimeout, Err: context.DeadlineExceeded}
	errCanceled = &limit.StoreError{Failure: limit.FailureCanceled, Err: context.Canceled}
	errForeign  = &limit.StoreError{Failure: limit.FailureWrongType, Err: errors.New("WRONGTYPE")}
)

// TestTripRule: each letter is a call (f fails, . succeeds, c is cancelled, w meets a wrong type),
// each space a second, and what follows is the state after the last.
func TestTripRule(t *testing.T) {
	long := strings.Repeat(" ", 11)
	tests := []struct {
		name, calls, want string
		failures          uint32
	}{
		{"nothing", "", "closed", 5},
		{"one short of the row", "ffff", "closed", 5},
		{"the last five all failed", "fffff", "open", 5},
		{"after many successes", "....................fffff", "open", 5},
		{"a success breaks the row", "....ffff.ffff", "open", 5}, // by the share in the window
		{"a row however slowly", "f" + long + "f" + long + "f" + long + "f" + long + "f", "open", 5},
		{"a slow row broken", "f" + long + "f" + long + "." + long + "f" + long + "f" + long + "f", "closed", 5},
		{"half within the window", "f.f.f.f.f", "open", 5},
		{"fewer than half", "..f..f..f..f..f..f", "closed", 5},
		{"half, but too few", "f.f.f.f.", "closed", 5},
		{"half, but too old", "f.f.f.f." + long + ".f", "closed", 5},
		{"successes too old to count", "........" + long + "f.f.f.f.f", "open", 5},
		{"the window rolls", "........          f.f.f.f.f", "open", 5},
		{"cancels are neither", "ffffccccccccc", "closed", 5},
		{"cancels do not break a row", "fcfcfcfcf", "open", 5},
		{"cancels are no successes", "cccccccccc.f.f.f.f.f", "open", 5},
		{"wrong types are neither", "wwwwwwwwww", "closed", 5},
		{"another number", "ff", "open", 2},
		{"one", "f", "open", 1},
	}
	results := map[rune]error{'f': errTimeout, '.': nil, 'c': errCanceled, 'w': errForeign}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var result error
				b := newBench(t, breaker.GateConfig{Failures: tt.failures}, &result)
				for _, step := range tt.calls {
					if step == ' ' {
						time.Sleep(time.Second)
						continue
					}
					result = results[step]
					b.call(t)
				}
				b.wantState(t, tt.want)
			})
		})
	}
}

// open fails calls until the breaker opens.
func (b *bench) open(t *testing.T, result *error) {
	t.Helper()
	*result = errTimeout
	for range 5 {
		b.call(t)
	}
	b.wantState(t, "open")
}

// TestRefusalSaysWhy: whoever the open breaker turns away learns what the last call met.
func TestRefusalSaysWhy(t *testing.T) {
	var result error
	b := newBench(t, breaker.GateConfig{}, &result)
	b.open(t, &result)
	done, err := b.Allow()
	if done != nil || !errors.Is(err, limit.ErrUnavailable) || !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "breaker is open") {
		t.Errorf("got %v, want that the breaker is open, and what it met", err)
	}
}

// TestRecovery pins the way back: no call while open, one when that time is over, which closes
// the breaker with a clean count or opens it for as long again.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var result error
		b := newBench(t, breaker.GateConfig{}, &result)
		for range 2 { // twice: nothing is left of the first time
			b.open(t, &result)
			before := b.shared.called()
			time.Sleep(1999 * time.Millisecond)
			for range 100 {
				b.call(t)
			}
			if got := b.shared.called(); got != before {
				t.Fatalf("%d calls went through an open breaker", got-before)
			}
			time.Sleep(2 * time.Millisecond)
			b.call(t) // fails
			b.wantState(t, "open")
			time.Sleep(1999 * time.Millisecond)
			b.call(t)
			if got := b.shared.called(); got != before+1 {
				t.Fatalf("%d calls went through, want the one that failed", got-before)
			}
			time.Sleep(2 * time.Millisecond)
			result = nil
			b.call(t)
			b.wantState(t, "closed")
			result = errTimeout
			for range 4 {
				b.call(t)
			}
			b.wantState(t, "closed") // as many as before the first time
			result = nil
			for range 10 {
				b.call(t)
			}
		}
		// One line for each outage and for its end, none for the trials.
		for line, want := range map[string]int{
			`level=WARN msg="circuit breaker open"`:   2,
			`level=INFO msg="circuit breaker closed"`: 2,
			"circuit breaker":                         4,
		} {
			if got := strings.Count(b.log.String(), line); got != want {
				t.Errorf("%d log lines with %q, want %d:\n%s", got, line, want, b.log.String())
			}
		}
	})
}

// TestHalfOpenLetsOneThrough pins that of a thousand concurrent calls exactly one goes through,
// however long it takes, and that those before the trip do not matter when they end.
func TestHalfOpenLetsOneThrough(t *testing.T) {
	for _, result := range []error{nil, errTimeout} {
		synctest.Test(t, func(t *testing.T) {
			var fail error
			b := newBench(t, breaker.GateConfig{}, &fail)
			late := make(chan struct{})
			done, err := b.Allow()
			if err != nil {
				t.Fatal(err)
			}
			go func() { <-late; done(errTimeout) }()
			synctest.Wait()
			b.open(t, &fail)
			time.Sleep(2001 * time.Millisecond)

			through := make(chan struct{})
			before := b.shared.called()
			b.shared.do = func([]limit.Request, []*limit.Decision) error { <-through; return result }
			var group sync.WaitGroup
			for range 1000 {
				group.Go(func() { b.call(t) })
			}
			synctest.Wait()
			close(late) // a failure from before the trip
			time.Sleep(time.Minute)
			b.wantState(t, "half-open")
			if got := b.shared.called() - before; got != 1 {
				t.Errorf("%d calls went through a half-open breaker, want 1", got)
			}
			close(through)
			group.Wait()
			if result == nil {
				b.wantState(t, "closed")
			} else {
				b.wantState(t, "open")
			}
		})
	}
}

// TestNoEndBlocks pins that no way in which the one call of a half-open breaker may end blocks it for
// ever.
func TestNoEndBlocks(t *testing.T) {
	tests := []struct {
		name string
		end  error
		want string
	}{
		{"success", nil, "closed"},
		{"failure", errTimeout, "open"},
		{"an error of an unknown kind", errors.New("strange"), "open"},
		{"cancel", errCanceled, "half-open"},
		{"a bare cancel", context.Canceled, "half-open"},
		{"wrong type", errForeign, "half-open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var result error
				b := newBench(t, breaker.GateConfig{}, &result)
				b.open(t, &result)
				time.Sleep(2001 * time.Millisecond)
				done, err := b.Allow()
				if err != nil {
					t.Fatal(err)
				}
				done(tt.end)
				b.wantState(t, tt.want)
				time.Sleep(2001 * time.Millisecond)
				result = nil
				b.call(t)
				b.wantState(t, "closed")
			})
		})
	}
}

// TestForget pins that a reset goes through the breaker and has no policy to fall back on.
func TestForget(t *testing.T) {
	var result error
	b := newBench(t, breaker.GateConfig{}, &result)
	if err := b.Forget(t.Context(), limit.Charge{}); err != nil {
		t.Errorf("Forget: %v", err)
	}
	b.open(t, &result)
	if err := b.Forget(t.Context(), limit.Charge{}); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("Forget while open: %v, want ErrUnavailable", err)
	}
}

func TestMetricTwice(t *testing.T) {
	registry := prometheus.NewRegistry()
	cfg := breaker.GateConfig{Logger: slog.New(slog.DiscardHandler), Registry: registry}
	if _, err := breaker.NewGate(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.NewGate(cfg); err == nil || !strings.HasPrefix(err.Error(), "breaker: register metrics: ") {
		t.Errorf("a second breaker on one registry: %v", err)
	}
}

// TestQuestionsOwnErrors: a question that is at fault itself is told so, whatever its limits do without
// Redis.
func TestQuestionsOwnErrors(t *testing.T) {
	for _, policy := range []limit.FailurePolicy{limit.FailOpen, limit.FailClosed, limit.FailLocal} {
		b := newBench(t, breaker.GateConfig{}, nil)
		b.shared.do = func(_ []limit.Request, decisions []*limit.Decision) error {
			decisions[0].Tier, decisions[0].Err = limit.TierRedis, limit.OtherCost()
			return nil
		}
		d := decide(t, b, []limit.Request{request(limitOf("l", policy))})[0]
		var invalid *limit.InvalidError
		if !errors.As(d.Err, &invalid) || d.Degraded || len(b.share.asked) > 0 {
			t.Errorf("%s: %+v, the share was asked %d times", policy, d, len(b.share.asked))
		}
	}
}
