package local

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/vectors"
)

// plant puts a state under key, as if a request had left it there.
func (m *Memory) plant(key string, bucket limit.BucketState) {
	s := &state{key: key, bucket: bucket, due: bucket.Until}
	m.states.Add(key, s)
	m.expiry.push(s)
}

func TestMemoryVectors(t *testing.T) {
	for _, trace := range vectors.Read(t, "../limit/testdata/token_bucket.json") {
		t.Run(trace.Name, func(t *testing.T) {
			m := newMemory(t, 0)
			l := &limit.Limit{Name: "vector", Algorithm: limit.TokenBucketAlgorithm, Unit: limit.RequestsUnit}
			plant := func(state limit.BucketState) { m.plant("key", state) }
			trace.Replay(t, l, plant, func(now int64, settings *limit.Settings, cost int64) limit.Verdict {
				return ask(m, now, limit.Charge{Limit: l, Settings: settings, Key: "key", Cost: cost}).Verdicts[0]
			})
		})
	}
}
