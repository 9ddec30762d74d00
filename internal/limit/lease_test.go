package limit_test

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestLeasedRefuses(t *testing.T) {
	bucket := *bucketOf(t, limit.TokenBucketAlgorithm, 10, 10)
	for _, tt := range []struct {
		name     string
		settings limit.Settings
		hold     int64
		want     string
	}{
		{"another algorithm", *bucketOf(t, limit.LeakyBucketAlgorithm, 10, 10), 100_000, "a leaky_bucket cannot be leased"},
		{"slots", *slots(t, 3, 1_000_000), 100_000, "a concurrency cannot be leased"},
		{"no hold", bucket, 0, "is not between 1ms and 1h"},
		{"a short hold", bucket, 999, "is not between 1ms and 1h"},
		{"a long hold", bucket, 3_600_000_001, "is not between 1ms and 1h"},
	} {
		if _, err := tt.settings.Leased(tt.hold); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
	for _, hold := range []int64{1000, 3_600_000_000} {
		if s, err := bucket.Leased(hold); err != nil || s.Hold != hold || s.Bucket != bucket.Bucket {
			t.Errorf("hold %d: %+v, %v", hold, s, err)
		}
	}
}

// leasedOfAllKinds returns leased settings of every kind.
func leasedOfAllKinds(t *testing.T, hold int64) map[string]limit.Settings {
	t.Helper()
	rate, err := limit.NewTokenBucket(limit.Rate{Tokens: 7, Micros: 300_000}, 20, 20)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 700_000}, 15, 4)
	if err != nil {
		t.Fatal(err)
	}
	discrete, err := limit.NewDiscreteBucket(4, 170_000, 30, 30)
	if err != nil {
		t.Fatal(err)
	}
	must := made(t)
	all := map[string]limit.Settings{"window": must(limit.NewFixedWindow(20, 1_300_000))}
	for name, b := range map[string]limit.TokenBucket{"even": rate, "slow and initial": slow, "discrete": discrete} {
		all[name] = limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}
	}
	for name, s := range all {
		all[name] = must(s.Leased(hold))
	}
	return all
}

// TestLeasedWaitIsTight: whatever was charged, lent and reported before, on an otherwise idle key the same cost
// passes after exactly the wait, and a µs earlier it does not; and the limit is as if unused after its reset.
func TestLeasedWaitIsTight(t *testing.T) {
	const hold = 100_000
	for name, s := range leasedOfAllKinds(t, hold) {
		t.Run(name, func(t *testing.T) {
			waited := 0
			for seed := range seeds() / 4 {
				rng := newRand(seed)
				var k key
				now := int64(vectorStart) + rng.Int64N(hold)
				var lent []limit.Lease
				for range 1 + rng.IntN(12) {
					now += rng.Int64N(2*hold) - rng.Int64N(hold)/8
					switch cost := rng.Int64N(s.Capacity()) + 1; rng.IntN(3) {
					case 0:
						k.ask(now, &s, 0, cost)
					case 1:
						lent = append(lent, k.lend(now, &s, cost))
					default:
						if len(lent) > 0 {
							l := lent[rng.IntN(len(lent))]
							used := rng.Int64N(l.Tokens + 1)
							k.takeBack(now, &s, []limit.LeaseReport{{Epoch: l.Epoch, Slot: l.Slot, Used: used, Unused: l.Tokens - used}})
						}
					}
				}
				cost := rng.Int64N(s.Capacity()) + 1
				waited += checkTight(t, seed, k.state, &s, now, cost)
			}
			if waited < seeds()/16 {
				t.Errorf("only %d waits", waited)
			}
		})
	}
}

// checkTight checks the wait and the reset of one cost, and returns whether there was a wait.
func checkTight(t *testing.T, seed int, st limit.State, s *limit.Settings, now, cost int64) int {
	t.Helper()
	at := func(when int64, ask int64) (wait, left, reset, out int64) {
		next := st
		wait, _ = s.Decide(&next, when, ask)
		left, reset = s.Report(&next, when)
		return wait, left, reset, s.Out(&next)
	}
	// A denied question stores a state that it has begun, or that moved back.
	next := st
	wait, moved := s.Decide(&next, now, cost)
	if moved {
		s.Charge(&next, now, 0, "")
		st = next
	}
	_, _, reset, _ := at(now, cost)
	if wait > 0 {
		if after, _, _, _ := at(now+wait, cost); after != 0 {
			t.Fatalf("seed %d: %d does not pass after %dµs, but %dµs later", seed, cost, wait, after)
		}
		if before, _, _, _ := at(now+wait-1, cost); before != 1 {
			t.Fatalf("seed %d: a µs before its wait is over %d waits %dµs", seed, cost, before)
		}
	}
	if _, left, rest, out := at(now+reset, 0); s.Bucket.Initial == s.Bucket.Burst && (left != s.Capacity() || rest != 0 || out != 0) {
		t.Fatalf("seed %d: after its reset the limit has %d left, %d out, and %dµs to go", seed, left, out, rest)
	}
	if _, left, _, out := at(now+reset-1, 0); s.Algorithm == limit.TokenBucketAlgorithm && reset > 0 && left == s.Capacity() && out == 0 {
		t.Fatalf("seed %d: the limit is as if unused before its reset is over", seed)
	}
	return int(min(wait, 1))
}

// TestLeasedStateIsKept: no state is forgotten while a lease from it may be handed out or its report be taken.
func TestLeasedStateIsKept(t *testing.T) {
	const hold = 100_000
	for name, s := range leasedOfAllKinds(t, hold) {
		var k key
		lease := k.lend(vectorStart+hold-1, &s, 3)
		if lease.Tokens != 3 {
			t.Fatalf("%s: %+v", name, lease)
		}
		if until := s.Until(&k.state); until < vectorStart+hold-1+2*hold {
			t.Errorf("%s: the state is forgotten %dµs after the lease, which is less than two holds", name, until-(vectorStart+hold-1))
		}
	}
}

// TestLeasedShare: a node's share is strict, and as large as that of a strict limit.
func TestLeasedShare(t *testing.T) {
	for name, s := range leasedOfAllKinds(t, 100_000) {
		strict := s
		strict.Hold = 0
		if got, want := s.Share(3), strict.Share(3); got != want {
			t.Errorf("%s: a share is %+v, of the strict limit %+v", name, got, want)
		}
		state := s.Seed(vectorStart, 2, 500_000)
		if left, _ := s.Report(&state, vectorStart); left != 2 || s.Out(&state) != 0 {
			t.Errorf("%s: seeded with 2, %d are left and %d out", name, left, s.Out(&state))
		}
		var k key
		if k.state = state; k.lend(vectorStart, &s, 5).Tokens != 2 {
			t.Errorf("%s: the two that it was seeded with cannot be lent", name)
		}
	}
}

// TestLeasedStatesLieApart: a limit that is made leased, or gets another hold, begins afresh under other keys.
func TestLeasedStatesLieApart(t *testing.T) {
	seen := map[string]int64{}
	for _, hold := range []int64{0, 1000, 100_000} {
		l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, Settings: *bucketOf(t, limit.TokenBucketAlgorithm, 10, 10)}
		if l.Settings.Hold = hold; hold > 0 {
			l.Settings = made(t)(l.Settings.Leased(hold))
		}
		if _, err := limit.NewRules("rl", nil, []*limit.Limit{l}, nil); err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[l.ID()]; ok {
			t.Errorf("holds of %d and %dµs have the same id %s", hold, other, l.ID())
		}
		seen[l.ID()] = hold
	}
}

// TestLeasedNumbersStayExact: even the largest settings keep every number within what Lua holds exactly.
func TestLeasedNumbersStayExact(t *testing.T) {
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: limit.MaxNumber / century, Micros: 1}, limit.MaxNumber/century*century, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := made(t)(limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}.Leased(3_600_000_000))
	var k key
	const late = 4_000_000_000_000_000 // in the year 2096
	k.ask(late, &s, 0, b.Burst)
	if until := s.Until(&k.state); until > limit.MaxNumber {
		t.Errorf("the state is kept until %d, above 2^53", until)
	}
	_, reset := s.Report(&k.state, late)
	if wait := k.ask(late+reset, &s, 0, b.Burst); !wait.Allowed {
		t.Errorf("the whole burst does not pass when the bucket is full: %+v", wait)
	}
}

// TestLeasedSettles: what is given back fills the limit up to what is out, and a later charge may leave a debt.
func TestLeasedSettles(t *testing.T) {
	for name, s := range map[string]limit.Settings{
		"bucket": leasedBucketOf(t, 1, 1_000_000, 10, 1_000_000),
		"window": made(t)(made(t)(limit.NewFixedWindow(10, 10_000_000)).Leased(1_000_000)),
	} {
		var k key
		k.ask(vectorStart, &s, 0, 3)
		mark := s.Mark(&k.state, vectorStart)
		k.lend(vectorStart, &s, 4)
		for _, step := range []struct{ charged, actual, left int64 }{{3, 1, 5}, {1, 9, -3}, {9, 8, -2}, {100, 0, 6}} {
			p := limit.Payment{Charged: step.charged, Actual: step.actual, Mark: mark}
			changed, ok := s.Settle(&k.state, vectorStart, &p)
			if left, _ := s.Report(&k.state, vectorStart); !changed || !ok || left != step.left || s.Out(&k.state) != 4 {
				t.Errorf("%s: %d in place of %d: %d left and %d out, want %d and 4", name, step.actual, step.charged, left, s.Out(&k.state), step.left)
			}
		}
	}
}

// TestForgottenWindowTakesNothingBack: what was charged before a reset is not given back to the window after it.
func TestForgottenWindowTakesNothingBack(t *testing.T) {
	s := made(t)(made(t)(limit.NewFixedWindow(10, 10_000_000)).Leased(1_000_000))
	var k key
	k.ask(vectorStart, &s, 0, 3)
	mark := s.Mark(&k.state, vectorStart)
	k.lend(vectorStart, &s, 4)
	k.forget(vectorStart, &s)
	k.ask(vectorStart, &s, 0, 2)
	s.Settle(&k.state, vectorStart, &limit.Payment{Charged: 3, Mark: mark})
	if left, _ := s.Report(&k.state, vectorStart); left != 4 || s.Out(&k.state) != 4 {
		t.Errorf("%d left and %d out, want 4 and 4", left, s.Out(&k.state))
	}
}
