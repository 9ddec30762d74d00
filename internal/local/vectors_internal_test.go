package local

import (
	"path/filepath"
	"testing"

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
				trace.Replay(t, l, vectors.Store{
					Key:   "key",
					Plant: func(state limit.BucketState) { m.plant("key", state) },
					Ask: func(now int64, r *limit.Request) (limit.Verdict, limit.Lease) {
						var d limit.Decision
						m.DecideAt(now, []limit.Request{*r}, []*limit.Decision{&d})
						return d.Verdicts[0], append(d.Leases, limit.Lease{})[0]
					},
					Forget: m.ForgetAt,
				})
			})
		}
	}
}
