package limit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestSettledWaitingRequests: three wait in a bucket of 10 that drains one a second, 4, 3 and 2; then the
// second is settled. When each has drained stays as it is.
func TestSettledWaitingRequests(t *testing.T) {
	tests := []struct {
		name    string
		payment limit.Payment
		now     int64
		changed bool
		left    int64
		list    []limit.Listed // in seconds
	}{
		{"as charged", limit.Payment{Charged: 3, Actual: 3, ID: "b"}, 1, false, 1, []limit.Listed{{4, 1, 3}, {3, 1, 6}, {2, 1, 8}}},
		{"less", limit.Payment{Charged: 3, Actual: 1, ID: "b"}, 1, true, 3, []limit.Listed{{4, 1, 3}, {1, 1, 6}, {2, 1, 8}}},
		{"nothing", limit.Payment{Charged: 3, Actual: 0, ID: "b"}, 1, true, 4, []limit.Listed{{4, 1, 3}, {0, 1, 6}, {2, 1, 8}}},
		{"nothing, and the first has drained", limit.Payment{Charged: 3, Actual: 0, ID: "b"}, 5, true, 8, []limit.Listed{{0, 5, 2}, {2, 5, 4}}},
		{"more", limit.Payment{Charged: 3, Actual: 9, ID: "b"}, 1, true, -5, []limit.Listed{{4, 1, 3}, {9, 1, 6}, {2, 1, 8}}},
		{"when it has drained", limit.Payment{Charged: 3, Actual: 9, ID: "b"}, 7, false, 8, []limit.Listed{{2, 7, 2}}},
		{"an unknown one", limit.Payment{Charged: 3, Actual: 9, ID: "x"}, 1, false, 1, []limit.Listed{{4, 1, 3}, {3, 1, 6}, {2, 1, 8}}},
		{"one without a name", limit.Payment{Charged: 3, Actual: 9}, 1, false, 1, []limit.Listed{{4, 1, 3}, {3, 1, 6}, {2, 1, 8}}},
		{"nothing was charged", limit.Payment{Charged: 0, Actual: 3, ID: "x"}, 1, true, -2, []limit.Listed{{4, 1, 3}, {3, 1, 6}, {2, 1, 8}, {3, 0, 11}}},
		{"after the clock was set back", limit.Payment{Charged: 3, Actual: 1, ID: "b"}, -100, true, 3, []limit.Listed{{4, 0, 4}, {1, 0, 7}, {2, 0, 9}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := logOf(t, limit.LeakyBucketLogAlgorithm, 10)
			var st limit.State
			s.Charge(&st, vectorStart, 4, "a")
			s.Charge(&st, vectorStart, 3, "b")
			s.Charge(&st, vectorStart, 2, "")
			now := vectorStart + tt.now*1_000_000
			changed, ok := s.Settle(&st, now, &tt.payment)
			if left, _ := s.Report(&st, now); changed != tt.changed || !ok || left != tt.left {
				t.Errorf("changed %t, ok %t, %d left, want %t, true, %d", changed, ok, left, tt.changed, tt.left)
			}
			for i := range tt.list {
				tt.list[i].Age *= 1_000_000
				tt.list[i].Due *= 1_000_000
			}
			if got := s.List(&st, now); !slices.Equal(got, tt.list) {
				t.Errorf("listed %+v, want %+v", got, tt.list)
			}
		})
	}
}

// TestSettlementGivesNoTimeBack: what comes after a request that costs nothing in the end still waits for
// it; when it has drained the bucket is as if unused.
func TestSettlementGivesNoTimeBack(t *testing.T) {
	s := logOf(t, limit.LeakyBucketLogAlgorithm, 10)
	var st limit.State
	s.Charge(&st, vectorStart, 10, "a")
	s.Settle(&st, vectorStart, &limit.Payment{Charged: 10, ID: "a"})
	if left, reset := s.Report(&st, vectorStart); left != 10 || reset != 10_000_000 {
		t.Errorf("%d left, reset after %d", left, reset)
	}
	s.Charge(&st, vectorStart, 1, "b")
	if left, reset := s.Report(&st, vectorStart); left != 9 || reset != 11_000_000 {
		t.Errorf("with another %d left, reset after %d", left, reset)
	}
	now := int64(vectorStart + 11_000_000)
	if left, reset := s.Report(&st, now); left != 10 || reset != 0 || s.Until(&st) != now {
		t.Errorf("in the end %d left, reset after %d, until %d", left, reset, s.Until(&st))
	}
}

// TestNothingDrainsLaterThanInACentury: settlements give capacity back but no time, so that without a bound
// the time could grow beyond what Lua counts exactly.
func TestNothingDrainsLaterThanInACentury(t *testing.T) {
	s, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: century}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var st limit.State
	for i := range 5 {
		now := vectorStart + int64(i)
		id := fmt.Sprint(i)
		if wait, _ := s.Decide(&st, now, 1); wait != 0 {
			t.Fatalf("round %d: a wait of %d", i, wait)
		}
		s.Charge(&st, now, 1, id)
		if _, reset := s.Report(&st, now); reset != century {
			t.Errorf("round %d: reset after %d, want %d", i, reset, int64(century))
		}
		s.Settle(&st, now, &limit.Payment{Charged: 1, ID: id})
	}
}

// TestOneCallEachTenthOfASecond: three a second and three at once are 33 in ten seconds, not more.
func TestOneCallEachTenthOfASecond(t *testing.T) {
	s, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 3, Micros: 1_000_000}, 3)
	if err != nil {
		t.Fatal(err)
	}
	var k key
	admitted := 0
	for now := int64(vectorStart); now < vectorStart+10_000_000; now += 100_000 {
		if k.ask(now, &s, 0, 1).Allowed {
			admitted++
		}
	}
	if admitted < 30 || admitted > 33 {
		t.Errorf("%d pass, want 30 to 33", admitted)
	}
}

// TestAHundredAreListed: those that drain first.
func TestAHundredAreListed(t *testing.T) {
	s := logOf(t, limit.LeakyBucketLogAlgorithm, 300)
	var st limit.State
	for range 250 {
		s.Charge(&st, vectorStart, 1, "")
	}
	now := int64(vectorStart + 30_500_000)
	list := s.List(&st, now)
	if len(list) != 100 || list[0].Due != 500_000 || list[99].Due != 99_500_000 {
		t.Errorf("%d are listed: %+v", len(list), list)
	}
}
