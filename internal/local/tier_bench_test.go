package local_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// drained is a tier that knows of keys used-up buckets, and the charges that it denies.
func drained(tb testing.TB, keys int) (*local.Tier, []limit.Charge) {
	return drainedOf(tb, bucketOf(even(tb, 1, 3_600_000_000, 100)), keys)
}

func drainedOf(tb testing.TB, s limit.Settings, keys int) (*local.Tier, []limit.Charge) {
	tier := newTier(tb, local.TierConfig{Recheck: time.Hour})
	l := &limit.Limit{Name: "l", Settings: s}
	charges := make([]limit.Charge, keys)
	now := time.Now()
	for i := range charges {
		key := fmt.Sprintf("rl:{requests-per-user~a1b2c3:user%08d}", i)
		charges[i] = limit.Charge{Limit: l, Settings: &l.Settings, Key: key, Hash: hashOf(key), Cost: 1}
		tier.Observe(now, &charges[i], &limit.Verdict{Limit: l, Settings: &l.Settings, RetryAfter: time.Hour, ResetAfter: 100 * time.Hour})
	}
	return tier, charges
}

func TestDenyDoesNotAllocate(t *testing.T) {
	tier, charges := drained(t, 1)
	allocs := testing.AllocsPerRun(100, func() {
		if _, denied := deny(tier, time.Now(), &charges[0]); !denied {
			t.Error("not denied")
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations for a local denial, want none", allocs)
	}
}

func BenchmarkDeny(b *testing.B) {
	for _, keys := range []int{1, 50_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			tier, charges := drained(b, keys)
			now := time.Now()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, denied := deny(tier, now, &charges[i]); !denied {
					b.Fatal("not denied")
				}
				if i++; i == keys {
					i = 0
				}
			}
		})
	}
}

func BenchmarkDenyWindow(b *testing.B) {
	tier, charges := drainedOf(b, must(b)(limit.NewSlidingWindow(100, 3_600_000_000)), 50_000)
	now := time.Now()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, denied := deny(tier, now, &charges[i]); !denied {
			b.Fatal("not denied")
		}
		if i++; i == len(charges) {
			i = 0
		}
	}
}

func BenchmarkDenyParallel(b *testing.B) {
	tier, charges := drained(b, 50_000)
	now := time.Now()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i = (i + 7919) % len(charges) {
			deny(tier, now, &charges[i])
		}
	})
}

func BenchmarkObserve(b *testing.B) {
	tier, charges := drained(b, 50_000)
	now := time.Now()
	v := limit.Verdict{Limit: charges[0].Limit, Settings: charges[0].Settings, ResetAfter: 100 * time.Hour}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tier.Observe(now, &charges[i], &v)
		if i++; i == len(charges) {
			i = 0
		}
	}
}

// emptyStore denies everything.
type emptyStore struct{}

func (emptyStore) Decide(_ context.Context, requests []limit.Request, decisions []*limit.Decision) {
	for i, d := range decisions {
		for _, c := range requests[i].Charges {
			d.Verdicts = append(d.Verdicts, limit.Verdict{Limit: c.Limit, Settings: c.Settings, Known: true, RetryAfter: time.Hour, ResetAfter: 100 * time.Hour})
		}
	}
}

func (emptyStore) Settle(context.Context, *limit.Settlement) (limit.Settled, error) {
	return limit.Settled{}, nil
}
func (emptyStore) Forget(context.Context, limit.Charge) error { return nil }

// denied is a limiter that denies the query locally: found, resolved, denied by the tier, counted.
func denied(tb testing.TB, hashed bool) (*limiter.Limiter, []limit.Query) {
	l := &limit.Limit{Name: "requests-per-user", Unit: limit.RequestsUnit, DefaultCost: 1, Key: []string{"user"}, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: even(tb, 1, 3_600_000_000, 100)}}
	var hide []string
	if hashed {
		hide = []string{"user"}
	}
	rules, err := limit.NewRules("rl", hide, []*limit.Limit{l}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	secret := limit.Secret("secret")
	path, err := limiter.New(limiter.Config{
		Store: emptyStore{}, Tier: newTier(tb, local.TierConfig{Recheck: time.Hour}), Timeout: time.Second,
		Secret: func() limit.Secret { return secret }, Rules: rules, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	query := []limit.Query{{Limit: l.Name, Attributes: limit.Attributes{{Name: "user", Value: "user00000042"}}}}
	decision := make([]limit.Decision, 1)
	for range 2 { // the store's denial is what the tier knows
		path.Decide(context.Background(), time.Now(), query, decision)
	}
	if decision[0].Tier != limit.TierLocal || decision[0].Allowed {
		tb.Fatalf("got %+v, want a local denial", decision[0])
	}
	return path, query
}

// BenchmarkLocalDenial is a whole question, and the clock reading that it begins with.
func BenchmarkLocalDenial(b *testing.B) {
	for _, hashed := range []bool{false, true} {
		b.Run(fmt.Sprintf("hashed=%v", hashed), func(b *testing.B) {
			path, query := denied(b, hashed)
			decision := make([]limit.Decision, 1)
			b.ReportAllocs()
			for b.Loop() {
				path.Decide(context.Background(), time.Now(), query, decision)
			}
		})
	}
}

// TestMemoryPerKey keeps the documented cap: what 2,000,000 distinct keys leave behind.
func TestMemoryPerKey(t *testing.T) {
	keys := 2_000_000
	if testing.Short() {
		keys = 250_000
	}
	l := &limit.Limit{Name: "l", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: even(t, 1, 3_600_000_000, 100)}}
	keyOf := func(i int) string { return fmt.Sprintf("rl:{requests-per-user~a1b2c3:user-with-a-long-name-%013d}", i) }
	tests := []struct {
		name string
		most int // bytes a key
		fill func() (kept any, entries func() int)
	}{
		{"tier", 230, func() (any, func() int) {
			tier := newTier(t, local.TierConfig{})
			v := limit.Verdict{Limit: l, Settings: &l.Settings, ResetAfter: 100 * time.Hour}
			for i := range keys {
				tier.Observe(time.Now(), &limit.Charge{Key: keyOf(i), Hash: hashOf(keyOf(i))}, &v)
			}
			return tier, tier.Len
		}},
		{"tier, denied", 325, func() (any, func() int) {
			tier := newTier(t, local.TierConfig{})
			v := limit.Verdict{Limit: l, Settings: &l.Settings, ResetAfter: 100 * time.Hour}
			for i := range keys {
				c := limit.Charge{Limit: l, Settings: &l.Settings, Hash: hashOf(keyOf(i)), Cost: 1}
				tier.Observe(time.Now(), &c, &v)
				if _, denied := deny(tier, time.Now(), &c); !denied {
					t.Fatal("not denied")
				}
			}
			return tier, tier.Len
		}},
		{"tier, windows", 300, func() (any, func() int) {
			tier := newTier(t, local.TierConfig{})
			l := &limit.Limit{Name: "l", Settings: must(t)(limit.NewSlidingWindowLog(100, 3_600_000_000))}
			v := limit.Verdict{Limit: l, Settings: &l.Settings, RetryAfter: time.Hour, ResetAfter: time.Hour}
			for i := range keys {
				c := limit.Charge{Limit: l, Settings: &l.Settings, Hash: hashOf(keyOf(i)), Cost: 1}
				tier.Observe(time.Now(), &c, &v)
				if _, denied := deny(tier, time.Now(), &c); !denied {
					t.Fatal("not denied")
				}
			}
			return tier, tier.Len
		}},
		{"fallback", 600, func() (any, func() int) {
			memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			f := local.NewFallback(memory, newTier(t, local.TierConfig{}), func(*limit.Limit) int { return 3 })
			requests, decisions := []limit.Request{{Charges: make([]limit.Charge, 1)}}, []*limit.Decision{new(limit.Decision)}
			for i := range keys {
				requests[0].Charges[0] = limit.Charge{Limit: l, Settings: &l.Settings, Key: keyOf(i), Hash: hashOf(keyOf(i)), Cost: 1}
				f.Decide(requests, decisions)
			}
			return f, memory.Len
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := inUse()
			kept, entries := tt.fill()
			used, n := inUse()-before, entries()
			t.Logf("%d keys asked, %d kept, %d bytes each", keys, n, used/n)
			if n > 100_000 || n < 95_000 {
				t.Errorf("%d keys are kept, want 100,000", n)
			}
			if used/n > tt.most {
				t.Errorf("%d bytes a key, want at most %d", used/n, tt.most)
			}
			runtime.KeepAlive(kept)
		})
	}
}

func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
