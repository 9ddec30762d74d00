package limit_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// bucketOf returns the settings of a token bucket, or of a leaky one, of so many tokens a second.
func bucketOf(t testing.TB, a limit.Algorithm, perSecond, burst int64) *limit.Settings {
	t.Helper()
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: perSecond, Micros: 1_000_000}, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	return &limit.Settings{Algorithm: a, Bucket: b}
}

// TestBucketsAreSettled: the difference is charged to the bucket as it is now, or given back to it, but
// never above its burst; one that is as if unused gets no state by a refund.
func TestBucketsAreSettled(t *testing.T) {
	tests := []struct {
		name            string
		taken           int64 // at first, of which charged is to be settled
		charged, actual int64
		after           int64 // µs since
		changed         bool
		left, reset     int64
	}{
		{"more, which leaves a debt", 10, 4, 20, 0, true, -16, 26_000_000},
		{"more, later", 10, 4, 7, 2_000_000, true, -1, 11_000_000},
		{"less, at none left", 10, 4, 1, 0, true, 3, 7_000_000},
		{"nothing in the end", 10, 10, 0, 0, true, 10, 0},
		{"as charged", 10, 4, 4, 0, false, 0, 10_000_000},
		{"a refund stops at the burst", 4, 4, 0, 2_000_000, true, 10, 0},
		{"a refund to a full bucket", 4, 4, 0, 4_000_000, false, 10, 0},
		{"a refund a day later", 4, 4, 0, 86_400_000_000, false, 10, 0},
		{"more, on a full bucket", 4, 4, 6, 4_000_000, true, 8, 2_000_000},
		{"something for nothing", 0, 0, 3, 0, true, 7, 3_000_000},
	}
	for _, a := range []limit.Algorithm{limit.TokenBucketAlgorithm, limit.LeakyBucketAlgorithm} {
		s := bucketOf(t, a, 1, 10)
		for _, tt := range tests {
			t.Run(a.String()+"/"+tt.name, func(t *testing.T) {
				var k key
				k.ask(vectorStart, s, 0, tt.taken)
				now := vectorStart + tt.after
				changed, ok := s.Settle(&k.state, now, &limit.Payment{Charged: tt.charged, Actual: tt.actual, ID: "id"})
				left, reset := s.Report(&k.state, now)
				if changed != tt.changed || !ok || left != tt.left || reset != tt.reset {
					t.Errorf("changed %t, ok %t, %d left, reset after %d; want %t, true, %d, %d", changed, ok, left, reset, tt.changed, tt.left, tt.reset)
				}
				if changed && s.Until(&k.state) < now+reset {
					t.Errorf("it lives until %d, want %d or later", s.Until(&k.state), now+reset)
				}
			})
		}
	}
}

// TestSettlementsMoveTheLevel: over random buckets, times and clock steps a settlement moves the level
// by exactly the difference, unless the bucket is full before, and takes no fraction of a token.
func TestSettlementsMoveTheLevel(t *testing.T) {
	deep := 0
	for seed := range traces(2000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		s := &limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: randomBucket(rng)}
		var k key
		now := int64(vectorStart)
		for step := range 60 {
			now += rng.Int64N(spread(rng, 2, 1e9)) - rng.Int64N(1000)
			k.ask(now, s, 0, spread(rng, 1, float64(s.Bucket.Burst+1)))
			now += rng.Int64N(spread(rng, 2, 1e9)) - rng.Int64N(1000)
			before, _, _ := s.Bucket.Decide(k.state.Bucket, now, 0)
			p := limit.Payment{Charged: rng.Int64N(s.Bucket.Burst + 1), Actual: spread(rng, 1, 1e10) - 1}
			if rng.IntN(50) == 0 {
				p.Actual = limit.MaxNumber - rng.Int64N(10)
			}
			next := k.state
			changed, ok := s.Settle(&next, now, &p)
			want := min(s.Bucket.Burst, before.Tokens+p.Charged-p.Actual)
			if want < s.Bucket.Lowest {
				deep++
				if ok {
					t.Fatalf("seed %d, step %d: a debt down to %d, below %d, was taken", seed, step, want, s.Bucket.Lowest)
				}
				continue
			}
			got := next.Bucket
			if !ok || got.Tokens != want || want < s.Bucket.Burst && got.Rem != before.Rem {
				t.Fatalf("seed %d, step %d: settling %+v of %+v: %+v, %t; want the level %d", seed, step, p, before, got, ok, want)
			}
			if changed {
				k.state = next
			}
		}
	}
	if deep == 0 {
		t.Error("no debt was too deep")
	}
}

// TestDeepestDebt: a debt that 100 years pay is taken, a token more is not.
func TestDeepestDebt(t *testing.T) {
	s := bucketOf(t, limit.TokenBucketAlgorithm, 1, 10)
	const century = 36525 * 86_400
	for actual, want := range map[int64]bool{century: true, century + 1: false} {
		var state limit.State
		if _, ok := s.Settle(&state, vectorStart, &limit.Payment{Actual: actual, ID: "id"}); ok != want {
			t.Errorf("%d of 10 in the end: ok %t, want %t", actual, ok, want)
		}
	}
}

// TestLastChargeIsTold: what Mark says of a leaky bucket's charge holds, whatever the time, until
// something is charged after it.
func TestLastChargeIsTold(t *testing.T) {
	for seed := range traces(500) {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		bucket := randomBucket(rng)
		bucket.Initial, bucket.Grain = bucket.Burst, 1
		s := &limit.Settings{Algorithm: limit.LeakyBucketAlgorithm, Bucket: bucket}
		fullAt := func(state limit.State, now int64) int64 {
			s.Decide(&state, now, 0)
			_, reset := s.Report(&state, now)
			return now + reset
		}
		var state limit.State
		now := int64(vectorStart)
		s.Decide(&state, now, 1)
		s.Charge(&state, now, spread(rng, 1, float64(bucket.Burst+1)), "id")
		mark := s.Mark(&state, now)
		for at := now; at < mark && at < now+50; at++ {
			if got := fullAt(state, at); got != mark {
				t.Fatalf("seed %d: %dµs later it is full at %d, want %d", seed, at-now, got, mark)
			}
		}
		if at := now + rng.Int64N(max(1, mark-now)); mark > now {
			next := state
			s.Decide(&next, at, 1)
			s.Charge(&next, at, spread(rng, float64(bucket.Tokens), 1e9)+1, "next")
			if got := fullAt(next, at); got == mark {
				t.Fatalf("seed %d: after another charge it is full at the same time", seed)
			}
		}
	}
}
