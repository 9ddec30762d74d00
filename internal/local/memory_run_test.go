package local_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// TestRunForgetsWhatCountsAsAbsent: idle keys go, those that still say something stay.
func TestRunForgetsWhatCountsAsAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		ask := func(name string, keys int, rate limit.Rate) {
			bucket, err := limit.NewTokenBucket(rate, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			l := &limit.Limit{Name: name, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}}
			for i := range keys {
				c := limit.Charge{Limit: l, Settings: &l.Settings, Key: fmt.Sprint(name, i), Cost: 1}
				m.Decide(ctx, []limit.Request{{Charges: []limit.Charge{c}}}, []*limit.Decision{{}})
			}
		}
		ask("quick", 5000, limit.Rate{Tokens: 1, Micros: 100_000})
		ask("slow", 10, limit.Rate{Tokens: 1, Micros: 3_600_000_000})
		time.Sleep(1500 * time.Millisecond)
		if got := m.Len(); got != 10 {
			t.Errorf("after they are full again %d states are kept, want 10", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
