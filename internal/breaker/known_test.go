package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/breaker"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// openSettings returns settings of 2 in an hour of every algorithm.
func openSettings(t *testing.T) []limit.Settings {
	const hour = 3_600_000_000
	rate := limit.Rate{Tokens: 2, Micros: hour}
	bucket, err := limit.NewTokenBucket(rate, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	all := []limit.Settings{
		{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
		{Algorithm: limit.LeakyBucketAlgorithm, Bucket: bucket},
	}
	for _, make := range []func() (limit.Settings, error){
		func() (limit.Settings, error) { return limit.NewLeakyBucketLog(rate, 2) },
		func() (limit.Settings, error) { return limit.NewSlidingWindowLog(2, hour) },
		func() (limit.Settings, error) { return limit.NewSlidingWindow(2, hour) },
		func() (limit.Settings, error) { return limit.NewFixedWindow(2, hour) },
		func() (limit.Settings, error) { return limit.NewCalendarWindow(2, limit.Month, time.UTC) },
		func() (limit.Settings, error) { return limit.NewConcurrency(2, hour) },
	} {
		s, err := make()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// TestOpenDeniesWhatIsKnown: an open limit allows while Redis is away, but for what an answer younger
// than a second denies; of slots, which may be freed at any time, nothing is known for certain.
func TestOpenDeniesWhatIsKnown(t *testing.T) {
	for _, s := range openSettings(t) {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path, away := openPath(t, s)
				ask := func(wantAllowed bool, tier limit.Tier) {
					t.Helper()
					var d [1]limit.Decision
					path.Decide(t.Context(), time.Now(), []limit.Query{{Limit: "l"}}, d[:])
					if d[0].Err != nil || d[0].Allowed != wantAllowed || d[0].Tier != tier || d[0].Degraded != (tier == limit.TierFallback) {
						t.Errorf("%+v, want allowed %t by %v", d[0], wantAllowed, tier)
					}
				}
				ask(true, limit.TierEmbedded)
				ask(true, limit.TierEmbedded)
				for range 3 {
					var d [1]limit.Decision
					path.Decide(t.Context(), time.Now(), []limit.Query{{Limit: "l"}}, d[:])
					if d[0].Allowed {
						t.Fatalf("%+v, want a denial", d[0])
					}
				}
				*away = true
				slots := s.Algorithm == limit.ConcurrencyAlgorithm
				for range 2 {
					if slots {
						ask(true, limit.TierFallback)
					} else {
						ask(false, limit.TierLocal)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(time.Nanosecond)
				for range 10 {
					ask(true, limit.TierFallback)
				}
			})
		})
	}
}

// openPath is a limiter with one open limit, over a store that fails while away.
func openPath(t *testing.T, s limit.Settings) (path *limiter.Limiter, away *bool) {
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	tier, err := local.NewTier(local.TierConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	away = new(bool)
	var result error
	b := newBench(t, breaker.GateConfig{}, &result)
	b.shared.do = func(requests []limit.Request, decisions []*limit.Decision) error {
		if *away {
			return errTimeout
		}
		memory.Decide(context.Background(), requests, decisions)
		return nil
	}
	l := limitOf("l", limit.FailOpen)
	l.DefaultCost, l.Settings = 1, s
	rules, err := limit.NewRules("rl", nil, []*limit.Limit{l}, nil)
	if err != nil {
		t.Fatal(err)
	}
	path, err = limiter.New(limiter.Config{
		Store: b, Tier: tier, Secret: func() limit.Secret { return limit.NewSecret() }, Timeout: wait,
		Rules: rules, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return path, away
}
