package local_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestDecideDoesNotAllocate: a decision on known keys takes no memory from the heap, whatever the algorithm
// but those that keep an entry.
func TestDecideDoesNotAllocate(t *testing.T) {
	window := func(s limit.Settings, err error) limit.Settings {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const minute = 60_000_000
	for _, settings := range []limit.Settings{
		{Algorithm: limit.TokenBucketAlgorithm, Bucket: even(t, 1, 1000, 1_000_000)},
		{Algorithm: limit.LeakyBucketAlgorithm, Bucket: even(t, 1, 1000, 1_000_000)},
		window(limit.NewFixedWindow(1_000_000, minute)),
		window(limit.NewSlidingWindow(1_000_000, minute)),
	} {
		m := newMemory(t, 0)
		l := &limit.Limit{Name: "l", Settings: settings}
		requests := []limit.Request{{Charges: []limit.Charge{{Limit: l, Settings: &l.Settings, Key: "key", Cost: 1}}}}
		decisions := []*limit.Decision{{}}
		got := testing.AllocsPerRun(1000, func() {
			m.Decide(t.Context(), requests, decisions)
		})
		if got > 0 {
			t.Errorf("%s: %v allocations a decision, want none", settings.Algorithm, got)
		}
	}
}
