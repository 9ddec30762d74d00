package breaker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/redistest"
)

// TestWhatDoesNotCount is the table of what leaves the breaker closed, many times over.
func TestWhatDoesNotCount(t *testing.T) {
	tests := []struct {
		name string
		ask  func(*testing.T, *rig, *redistest.Server)
	}{
		{"denials", func(t *testing.T, r *rig, server *redistest.Server) {
			server.Do(t, "FLUSHALL")
			for range 130 {
				if open, _ := r.ask(t.Context(), t); open.Degraded || open.Err != nil {
					t.Fatalf("%+v", open)
				}
			}
			if open, _ := r.ask(t.Context(), t); open.Verdicts[0].Allowed {
				t.Fatal("no denial: nothing was tested")
			}
		}},
		{"NOSCRIPT", func(t *testing.T, r *rig, server *redistest.Server) {
			for range 10 {
				server.Do(t, "SCRIPT", "FLUSH")
				if open, _ := r.ask(t.Context(), t); open.Degraded || open.Err != nil {
					t.Fatalf("%+v", open)
				}
			}
		}},
		{"cancelled before", func(t *testing.T, r *rig, _ *redistest.Server) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for range 10 {
				r.ask(ctx, t)
			}
		}},
		{"cancelled meanwhile", func(t *testing.T, r *rig, server *redistest.Server) {
			server.Pause()
			defer server.Resume()
			for range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				r.ask(ctx, t)
			}
		}},
		{"a key of a wrong type", func(t *testing.T, r *rig, server *redistest.Server) {
			server.Do(t, "SET", "foreign", "x")
			for range 10 {
				open, closed := r.ask(t.Context(), t, "foreign")
				if !errors.Is(open.Err, limit.ErrWrongType) || open.Degraded {
					t.Fatalf("on the foreign key: %+v", open)
				}
				if closed.Err != nil || closed.Degraded || !closed.Verdicts[0].Known {
					t.Fatalf("beside it: %+v", closed)
				}
			}
		}},
		{"bad input", func(t *testing.T, r *rig, server *redistest.Server) {
			l := limitOf("per-user", limit.FailOpen)
			l.Key = []string{"user"}
			rules, err := limit.NewRules("rl", nil, []*limit.Limit{l}, nil)
			if err != nil {
				t.Fatal(err)
			}
			questions, err := limiter.New(limiter.Config{
				Store: r, Secret: func() limit.Secret { return nil }, Timeout: wait, Rules: rules, Registry: prometheus.NewRegistry(),
			})
			if err != nil {
				t.Fatal(err)
			}
			before := server.Calls(t, "evalsha")
			for range 10 {
				decisions := make([]limit.Decision, 2)
				questions.Decide(t.Context(), time.Now(), []limit.Query{{Limit: "per-user"}, {Limit: "none"}}, decisions)
				var bad *limit.InvalidError
				if !errors.As(decisions[0].Err, &bad) || !errors.Is(decisions[1].Err, limit.ErrUnknownPolicy) {
					t.Fatalf("%+v", decisions)
				}
			}
			if got := server.Calls(t, "evalsha"); got != before {
				t.Errorf("Redis was asked %d times", got-before)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithUsers("default on >right ~* &* +@all"))
			r := newRig(t, server.Addr())
			r.ask(t.Context(), t)
			tt.ask(t, r, server)
			if got := r.State(); got != "closed" {
				t.Errorf("the breaker is %s: %v", got, r.errors(t))
			}
			for kind := range r.errors(t) {
				if kind != string(limit.FailureCanceled) && kind != string(limit.FailureWrongType) {
					t.Errorf("errors by kind: %v", r.errors(t))
				}
			}
		})
	}
}
