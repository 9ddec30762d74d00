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
	v := limit.NewVerdict(&c, maxWait, wait, left, reset)
	v.Out = settings.Out(&next)
	return v
}

// answer decides a request with one charge and at most one order as a store does.
func (s *key) answer(now int64, r *limit.Request) (v limit.Verdict, lease limit.Lease) {
	c := &r.Charges[0]
	for i := range r.Orders {
		s.takeBack(now, c.Settings, r.Orders[i].Reports)
	}
	v = s.ask(now, c.Settings, r.MaxWait, c.Cost)
	for i := range r.Orders {
		lease = s.lend(now, c.Settings, r.Orders[i].Want)
	}
	return v, lease
}

func (s *key) takeBack(now int64, settings *limit.Settings, reports []limit.LeaseReport) {
	next := s.state
	if settings.TakeBack(&next, now, reports) {
		s.state = next
	}
}

func (s *key) lend(now int64, settings *limit.Settings, want int64) limit.Lease {
	if want == 0 {
		return limit.Lease{}
	}
	next := s.state
	lease, changed := settings.Lend(&next, now, want)
	if changed {
		s.state = next
	}
	return lease
}

func (s *key) forget(now int64, settings *limit.Settings) {
	if !settings.Forget(&s.state, now) {
		s.state = limit.State{}
	}
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
				trace.Replay(t, nil, vectors.Store{
					Key:    "key",
					Plant:  func(state limit.BucketState) { s.state = limit.State{Bucket: state} },
					Ask:    s.answer,
					Forget: func(now int64, c limit.Charge) { s.forget(now, c.Settings) },
				})
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
