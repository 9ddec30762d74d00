package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// BenchmarkServerTime reports the time that a call spends in Redis, from INFO commandstats, and
// that time per key.
func BenchmarkServerTime(b *testing.B) {
	server := redistest.Start(b)
	for _, state := range []limit.StateForm{limit.HashState, limit.StringState} {
		for _, keys := range []int{1, 4, 32} {
			b.Run(fmt.Sprintf("%s/%d", state, keys), func(b *testing.B) { benchServerTime(b, server, state, keys) })
		}
	}
}

func benchServerTime(b *testing.B, server *redistest.Server, state limit.StateForm, keys int) {
	store, err := New(Config{Addr: server.Socket(), Timeout: 10 * time.Second, KeyPrefix: "rl", Registry: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1000}, 1_000_000, 1_000_000)
	if err != nil {
		b.Fatal(err)
	}
	l := &limit.Limit{Name: "l", State: state, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}}
	requests := make([]limit.Request, keys)
	decisions := make([]*limit.Decision, keys)
	for i := range requests {
		requests[i].Charges = []limit.Charge{{Limit: l, Settings: &l.Settings, Key: fmt.Sprintf("rl:{l~000000:%s%d}", state, i), Cost: 1}}
		decisions[i] = new(limit.Decision)
	}
	if err := store.Decide(b.Context(), requests, decisions); err != nil {
		b.Fatal(err)
	}
	server.Do(b, "CONFIG", "RESETSTAT")
	for b.Loop() {
		if err := store.Decide(b.Context(), requests, decisions); err != nil {
			b.Fatal(err)
		}
	}
	perCall := float64(server.CallTime(b, "evalsha").Nanoseconds()) / float64(server.Calls(b, "evalsha"))
	b.ReportMetric(perCall/1000, "redis-µs/call")
	b.ReportMetric(perCall/1000/float64(keys), "redis-µs/key")
}
