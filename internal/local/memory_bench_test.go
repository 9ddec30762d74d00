package local_test

import (
	"fmt"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// BenchmarkMemoryDecide measures one decision of the embedded store: must stay below 1µs.
func BenchmarkMemoryDecide(b *testing.B) {
	const plenty = 1 << 40
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1000, Micros: 1}, plenty, plenty)
	if err != nil {
		b.Fatal(err)
	}
	allows := func(name string) *limit.Limit {
		return &limit.Limit{Name: name, Unit: limit.RequestsUnit, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}}
	}
	drained := hourly(b, "drained", 1)
	tests := []struct {
		name    string
		charges []limit.Charge
	}{
		{"allowed", []limit.Charge{chargeOf(allows("a"), 1)}},
		{"denied", []limit.Charge{chargeOf(drained, 1)}},
		{"three limits", []limit.Charge{chargeOf(allows("a"), 1), chargeOf(allows("b"), 1), chargeOf(allows("c"), 1)}},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			m := newMemory(b, 0)
			requests, decisions := []limit.Request{{Charges: tt.charges}}, []*limit.Decision{new(limit.Decision)}
			b.ReportAllocs()
			for b.Loop() {
				m.Decide(b.Context(), requests, decisions)
			}
		})
	}
	b.Run("100,000 keys", func(b *testing.B) {
		m, l := newMemory(b, 0), hourly(b, "l", 1000)
		requests, decisions := []limit.Request{{Charges: []limit.Charge{chargeOf(l, 1)}}}, []*limit.Decision{new(limit.Decision)}
		keys := make([]string, 100_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("rl:{requests-per-user~a1b2c3:user-%d}", i)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			requests[0].Charges[0].Key = keys[i*7919%len(keys)]
			m.Decide(b.Context(), requests, decisions)
		}
	})
	b.Run("new keys at the cap", func(b *testing.B) {
		m, l := newMemory(b, 10_000), hourly(b, "l", 5)
		requests, decisions := []limit.Request{{Charges: []limit.Charge{chargeOf(l, 1)}}}, []*limit.Decision{new(limit.Decision)}
		keys := make([]string, 1_000_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("rl:{requests-per-user~a1b2c3:user-%d}", i)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			requests[0].Charges[0].Key = keys[i%len(keys)]
			m.Decide(b.Context(), requests, decisions)
		}
	})
}
