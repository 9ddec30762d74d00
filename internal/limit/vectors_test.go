package limit_test

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/vectors"
)

// vectorStart is when every trace begins, in µs since 1970.
const vectorStart = vectors.Start

// vectorWant is what a store answers; durations are in µs.
type vectorWant struct {
	Allowed, Never bool
	Remaining      int64
	RetryAfter     int64
	ResetAfter     int64
}

// store is one key of a store: what a store does around the arithmetic.
type store struct{ state limit.BucketState }

// ask decides, charges and reports as a store does.
func (s *store) ask(b *limit.TokenBucket, now, cost int64) vectorWant {
	next, wait, moved := b.Decide(s.state, now, cost)
	if wait != 0 {
		cost = 0
	}
	if cost > 0 || moved {
		next = b.Charge(next, cost)
		s.state = next
	}
	return vectorWant{
		Allowed: wait == 0, Never: wait == limit.Never,
		Remaining: next.Tokens, RetryAfter: max(0, wait), ResetAfter: b.TimeToFull(next),
	}
}

func TestTokenBucketVectors(t *testing.T) {
	for _, trace := range vectors.Read(t, "testdata/token_bucket.json") {
		t.Run(trace.Name, func(t *testing.T) {
			var s store
			l := new(limit.Limit)
			plant := func(state limit.BucketState) { s.state = state }
			trace.Replay(t, l, plant, func(now int64, settings *limit.Settings, cost int64) limit.Verdict {
				got := s.ask(&settings.Bucket, now, cost)
				return limit.Verdict{
					Limit: l, Settings: settings, Known: true, Allowed: got.Allowed, Never: got.Never, Remaining: got.Remaining,
					RetryAfter: time.Duration(got.RetryAfter) * time.Microsecond,
					ResetAfter: time.Duration(got.ResetAfter) * time.Microsecond,
				}
			})
		})
	}
}
