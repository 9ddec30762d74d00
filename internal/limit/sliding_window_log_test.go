package limit_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// logOf returns one of the logs that holds most: a window of 10 s, or a bucket that drains one a second.
func logOf(t *testing.T, a limit.Algorithm, most int64) limit.Settings {
	t.Helper()
	s, err := limit.NewSlidingWindowLog(most, 10_000_000)
	if a == limit.LeakyBucketLogAlgorithm {
		s, err = limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: 1_000_000}, most)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSettledWindowEntries: three are charged, 4 at 0 s, 3 at 1 s and 2 at 2 s, of 10 in 10 s; then the
// second is settled.
func TestSettledWindowEntries(t *testing.T) {
	tests := []struct {
		name    string
		payment limit.Payment
		now     int64
		changed bool
		left    int64
		waits   [3]int64 // for 4, 6 and 8 in all
	}{
		{"as charged", limit.Payment{Charged: 3, Actual: 3, ID: "b"}, 3, false, 1, [3]int64{7, 8, 8}},
		{"less", limit.Payment{Charged: 3, Actual: 1, ID: "b"}, 3, true, 3, [3]int64{7, 7, 8}},
		{"nothing", limit.Payment{Charged: 3, Actual: 0, ID: "b"}, 3, true, 4, [3]int64{0, 7, 7}},
		{"more", limit.Payment{Charged: 3, Actual: 4, ID: "b"}, 3, true, 0, [3]int64{7, 8, 8}},
		{"more than there is", limit.Payment{Charged: 3, Actual: 9, ID: "b"}, 3, true, -5, [3]int64{8, 8, 8}},
		{"at the last moment", limit.Payment{Charged: 3, Actual: 0, ID: "b"}, 10, true, 8, [3]int64{0, 0, 0}},
		{"when it no longer counts", limit.Payment{Charged: 3, Actual: 9, ID: "b"}, 11, false, 8, [3]int64{0, 0, 0}},
		{"an unknown one", limit.Payment{Charged: 3, Actual: 9, ID: "x"}, 3, false, 1, [3]int64{7, 8, 8}},
		{"one without a name", limit.Payment{Charged: 3, Actual: 9}, 3, false, 1, [3]int64{7, 8, 8}},
		{"nothing was charged", limit.Payment{Charged: 0, Actual: 3, ID: "x"}, 3, true, -2, [3]int64{8, 9, 10}},
		{"nor is anything", limit.Payment{Charged: 0, Actual: 0, ID: "x"}, 3, false, 1, [3]int64{7, 8, 8}},
		{"after the clock was set back", limit.Payment{Charged: 3, Actual: 0, ID: "b"}, 1, true, 4, [3]int64{0, 9, 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := logOf(t, limit.SlidingWindowLogAlgorithm, 10)
			var st limit.State
			s.Charge(&st, vectorStart, 4, "a")
			s.Charge(&st, vectorStart+1_000_000, 3, "b")
			s.Charge(&st, vectorStart+2_000_000, 2, "")
			now := vectorStart + tt.now*1_000_000
			changed, ok := s.Settle(&st, now, &tt.payment)
			if left, _ := s.Report(&st, now); changed != tt.changed || !ok || left != tt.left {
				t.Errorf("changed %t, ok %t, %d left, want %t, true, %d", changed, ok, left, tt.changed, tt.left)
			}
			for i, cost := range []int64{4, 6, 8} {
				wait, _ := s.Decide(&st, now, cost)
				if wait != tt.waits[i]*1_000_000 {
					t.Errorf("a cost of %d waits for %dµs, want %ds", cost, wait, tt.waits[i])
				}
			}
		})
	}
}

// TestLastWindowEntryGivenBack: a log whose only entry is given back is as if unused.
func TestLastWindowEntryGivenBack(t *testing.T) {
	s := logOf(t, limit.SlidingWindowLogAlgorithm, 10)
	var st limit.State
	s.Charge(&st, vectorStart, 4, "a")
	changed, ok := s.Settle(&st, vectorStart, &limit.Payment{Charged: 4, ID: "a"})
	left, reset := s.Report(&st, vectorStart)
	if !changed || !ok || left != 10 || reset != 0 || s.Until(&st) > vectorStart {
		t.Errorf("changed %t, ok %t, %d left, reset after %d, until %d", changed, ok, left, reset, s.Until(&st))
	}
}

// TestExpiredStayExpired: entries beyond the thousand that a charge drops do not count again when the
// clock is set back.
func TestExpiredStayExpired(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingWindowLogAlgorithm, limit.LeakyBucketLogAlgorithm} {
		for _, back := range []int64{1, 5_000_000, 60_000_000_000} {
			s := logOf(t, a, 2500)
			var st limit.State
			for range 2500 {
				s.Charge(&st, vectorStart, 1, "")
			}
			later := int64(vectorStart + 3_000_000_000)
			s.Decide(&st, later, 1)
			s.Charge(&st, later, 1, "")
			if wait, moved := s.Decide(&st, later-back, 2499); wait != 0 || !moved {
				t.Errorf("%s: back by %dµs: a wait of %d, moved %t", a, back, wait, moved)
			}
		}
	}
}

// TestLogSharesOverdraw: a cost above a node's share passes while nothing counts, and leaves a debt.
func TestLogSharesOverdraw(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingWindowLogAlgorithm, limit.LeakyBucketLogAlgorithm} {
		for _, nodes := range []int64{3, 20} {
			whole := logOf(t, a, 10)
			s := whole.Share(nodes)
			var st limit.State
			if wait, _ := s.Decide(&st, vectorStart, 10); wait != 0 {
				t.Fatalf("%s among %d: a wait of %d", a, nodes, wait)
			}
			s.Charge(&st, vectorStart, 10, "")
			left, reset := s.Report(&st, vectorStart)
			if want := 10/nodes - 10; left != want || reset < 10_000_000 {
				t.Errorf("%s among %d: %d left, reset after %d; want %d", a, nodes, left, reset, want)
			}
			if wait, _ := s.Decide(&st, vectorStart, 10); wait != reset {
				t.Errorf("%s among %d: again after %d, want %d", a, nodes, wait, reset)
			}
			if wait, _ := whole.Decide(&limit.State{}, vectorStart, 11); wait != limit.Never {
				t.Errorf("%s: more than the whole limit waits for %d", a, wait)
			}
		}
	}
}

// TestLogSeeds: a state that is seeded has so much left, and is as if unused after so long.
func TestLogSeeds(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingWindowLogAlgorithm, limit.LeakyBucketLogAlgorithm} {
		tests := []struct{ left, reset, wantLeft, wantReset int64 }{
			{3, 4_000_000, 3, 4_000_000},
			{-5, 10_000_000, -5, 10_000_000},
			{10, 4_000_000, 10, 0},
			{3, 0, 10, 0},
		}
		for _, tt := range tests {
			s := logOf(t, a, 10)
			st := s.Seed(vectorStart, tt.left, tt.reset)
			s.Decide(&st, vectorStart, 0)
			if left, reset := s.Report(&st, vectorStart); left != tt.wantLeft || reset != tt.wantReset {
				t.Errorf("%s: seeded with %d and %d: %d left, reset after %d; want %d, %d", a, tt.left, tt.reset, left, reset, tt.wantLeft, tt.wantReset)
			}
			if left, reset := s.Report(&st, vectorStart+tt.wantReset); left != 10 || reset != 0 {
				t.Errorf("%s: seeded with %d and %d: then %d left, reset after %d", a, tt.left, tt.reset, left, reset)
			}
		}
	}
	for a, want := range map[limit.Algorithm]int64{limit.SlidingWindowLogAlgorithm: 10_000_000, limit.LeakyBucketLogAlgorithm: century} {
		s := logOf(t, a, 10)
		st := s.Seed(vectorStart, 0, 2*century)
		if _, reset := s.Report(&st, vectorStart); reset != want {
			t.Errorf("%s: seeded for two centuries it resets after %d, want %d", a, reset, want)
		}
	}
}
