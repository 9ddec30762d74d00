package local

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/vectors"
)

// plant puts a state under key, as if a request had left it there.
func (m *Memory) plant(key string, bucket limit.BucketState) {
	if stored, ok := m.states.Peek(key); ok {
		m.drop(stored)
	}
	m.add(0, &state{key: key, state: limit.State{Bucket: bucket}, until: bucket.Until})
}

func TestMemoryVectors(t *testing.T) {
	files, err := filepath.Glob("../limit/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, trace := range vectors.Read(t, file) {
			t.Run(filepath.Base(file)+"/"+trace.Name, func(t *testing.T) {
				m := newMemory(t, 0)
				l := &limit.Limit{Name: "vector", Unit: limit.RequestsUnit}
				plant := func(state limit.BucketState) { m.plant("key", state) }
				trace.Replay(t, l, plant, func(now int64, settings *limit.Settings, maxWait time.Duration, cost int64) limit.Verdict {
					var d limit.Decision
					charge := limit.Charge{Limit: l, Settings: settings, Key: "key", Cost: cost}
					m.DecideAt(now, []limit.Request{{Charges: []limit.Charge{charge}, MaxWait: maxWait}}, []*limit.Decision{&d})
					return d.Verdicts[0]
				})
			})
		}
	}
}
