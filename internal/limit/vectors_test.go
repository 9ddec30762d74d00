package limit_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/vectors"
)

// vectorStart is when every trace begins.
const vectorStart = vectors.Start

// key is one key of a store: what a store does around the arithmetic.
type key struct{ state limit.State }

// ask decides, charges and reports as a store does.
func (s *key) ask(now int64, settings *limit.Settings, maxWait time.Duration, cost int64) limit.Verdict {
	next := s.state
	wait, moved := settings.Decide(&next, now, cost)
	c := limit.Charge{Settings: settings}
	if v := limit.NewVerdict(&c, maxWait, wait, 0, 0); !v.Allowed {
		cost = 0
	}
	if cost > 0 || moved {
		settings.Charge(&next, now, cost, "")
		s.state = next
	}
	left, reset := settings.Report(&next, now)
	return limit.NewVerdict(&c, maxWait, wait, left, reset)
}

// TestVectors holds the arithmetic of every algorithm to its golden traces.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, trace := range vectors.Read(t, file) {
			t.Run(filepath.Base(file)+"/"+trace.Name, func(t *testing.T) {
				var s key
				plant := func(state limit.BucketState) { s.state = limit.State{Bucket: state} }
				trace.Replay(t, nil, plant, s.ask)
			})
		}
	}
}

// made returns what a constructor of settings has made, which must be no error.
func made(t *testing.T) func(limit.Settings, error) limit.Settings {
	return func(s limit.Settings, err error) limit.Settings {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}
