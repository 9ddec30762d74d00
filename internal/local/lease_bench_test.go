package local_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// lent is a limiter that answers the query from a lease: found, resolved, handed out, counted.
func lent(tb testing.TB) (*limiter.Limiter, []limit.Query) {
	const most = 1_000_000_000_000
	settings, err := limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: even(tb, 1, 1000, most)}.Leased(time.Minute.Microseconds())
	if err != nil {
		tb.Fatal(err)
	}
	l := &limit.Limit{Name: "requests-per-user", Unit: limit.RequestsUnit, DefaultCost: 1, Key: []string{"user"}, Settings: settings}
	rules, err := limit.NewRules("rl", nil, []*limit.Limit{l}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	leases, err := local.NewLeases(local.LeasesConfig{Timeout: time.Second, Registry: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	path, err := limiter.New(limiter.Config{
		Store: memory, Tier: newTier(tb, local.TierConfig{}), Leases: leases, Timeout: time.Second,
		Secret: func() limit.Secret { return nil }, Rules: rules, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	query := []limit.Query{{Limit: l.Name, Attributes: limit.Attributes{{Name: "user", Value: "user00000042"}}}}
	decision := make([]limit.Decision, 1)
	for range 100_000 { // until what is lent lasts
		path.Decide(context.Background(), time.Now(), query, decision)
	}
	if decision[0].Tier != limit.TierLease || !decision[0].Allowed {
		tb.Fatalf("got %+v, want an answer from a lease", decision[0])
	}
	return path, query
}

// BenchmarkLocalLease is a whole question, and the clock reading that it begins with.
func BenchmarkLocalLease(b *testing.B) {
	path, query := lent(b)
	decision := make([]limit.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		path.Decide(context.Background(), time.Now(), query, decision)
	}
}
