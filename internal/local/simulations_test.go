package local_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// simulate runs many simulations, and returns their sums.
func simulate(t *testing.T, credits bool) (sum simulation) {
	seed := uint64(time.Now().UnixNano())
	if testing.Short() {
		seed = 1
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	worlds := 20_000
	if testing.Short() {
		worlds = 400
	}
	denied := map[limit.Algorithm]int{}
	for range worlds {
		s := newSimulation(t, rng, randomSettings(rng, 1), 1+rng.IntN(5))
		s.credits = credits
		s.run(500)
		sum.asked, sum.calls, sum.deniedLocally, sum.late = sum.asked+s.asked, sum.calls+s.calls, sum.deniedLocally+s.deniedLocally, sum.late+s.late
		denied[s.limit.Settings.Algorithm] += s.deniedLocally
	}
	t.Logf("%d requests, %d calls, %d local denials %v, %d of them late", sum.asked, sum.calls, sum.deniedLocally, denied, sum.late)
	for _, a := range limit.Algorithms() {
		if few := sum.asked / 300; denied[a] < few && a != limit.ConcurrencyAlgorithm {
			t.Errorf("%s: only %d local denials: the test sees too little", a, denied[a])
		}
	}
	return sum
}

// gainOf returns what the limit gets back in d on average.
func gainOf(s *limit.Settings, d time.Duration) float64 {
	if w := s.Window; w.Limit > 0 {
		return float64(w.Limit) * float64(d) / float64(s.Span())
	}
	return float64(s.Bucket.Tokens) * float64(max(1, s.Bucket.Grain)) * float64(d.Microseconds()) / float64(s.Bucket.Micros)
}

func TestNoDenialIsFalse(t *testing.T) {
	if sum := simulate(t, false); sum.late > 0 {
		t.Errorf("%d denials were false", sum.late)
	}
}

func TestFalseDenialsEndWithinASecondOfTheCredit(t *testing.T) {
	if sum := simulate(t, true); sum.late == 0 {
		t.Error("no denial was late: the test sees too little")
	}
}

func TestCallsPerDenial(t *testing.T) {
	tests := []struct {
		name     string
		settings limit.Settings
		perToken float64 // requests over all nodes for each token
		most     float64 // calls per denied request
	}{
		{"10 times overload, 10/s", bucketOf(even(t, 10, 1_000_000, 10)), 10, 0.55},
		{"10 times overload, burst 1", bucketOf(even(t, 10, 1_000_000, 1)), 10, 0.55},
		{"10 times overload, 1000/s", bucketOf(even(t, 1, 1000, 1000)), 10, 0.9},
		{"10 times overload, 10 each second", bucketOf(discrete(t, 10, time.Second, 10)), 10, 0.2},
		{"500 times overload, 10/s", bucketOf(even(t, 10, 1_000_000, 10)), 500, 0.02},
		{"10 times overload, a window of 10 in 1s", must(t)(limit.NewFixedWindow(10, 1_000_000)), 10, 0.2},
		{"10 times overload, a log of 10 in 1s", must(t)(limit.NewSlidingWindowLog(10, 1_000_000)), 10, 0.5},
		{"10 times overload, 10 in about 1s", must(t)(limit.NewSlidingWindow(10, 1_000_000)), 10, 0.6},
		{"10 times overload, 10/s out of a log of 10", must(t)(limit.NewLeakyBucketLog(limit.Rate{Tokens: 10, Micros: 1_000_000}, 10)), 10, 0.65},
		{"500 times overload, a log of 10 in 1s", must(t)(limit.NewSlidingWindowLog(10, 1_000_000)), 500, 0.03},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			s, alone := newSimulation(t, rng, tt.settings, 5), newSimulation(t, rng, tt.settings, 0)
			gap := 1e9 / gainOf(&tt.settings, time.Second) / tt.perToken
			const requests = 50_000
			at := 0.0
			for range requests {
				at += rng.ExpFloat64() * gap
				s.push(&event{at: int64(at), node: rng.IntN(5), cost: 1})
				alone.now = int64(at)
				if alone.answer(1).Allowed {
					alone.granted++
				}
			}
			for len(s.events) > 0 {
				s.step(func() int64 { return 100_000 + rng.Int64N(100_000) })
			}
			perDenied, share := float64(s.calls)/float64(requests-s.granted), float64(s.granted)/float64(alone.granted)
			t.Logf("%.3f calls per denied request, %.1f per token; %.4f of what the bucket alone grants", perDenied, float64(s.calls)/float64(s.granted), share)
			if perDenied > tt.most {
				t.Errorf("%.3f calls per denied request, want at most %.2f", perDenied, tt.most)
			}
			if share < 0.98 {
				t.Errorf("%.4f of what the bucket alone grants", share)
			}
		})
	}
}
