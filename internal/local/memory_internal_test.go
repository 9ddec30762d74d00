package local

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/vectors"
)

func newMemory(t testing.TB, maxKeys int) *Memory {
	t.Helper()
	m, err := NewMemory(MemoryConfig{MaxKeys: maxKeys, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// every returns a limit that gains a token every micros and holds burst.
func every(t testing.TB, name string, micros, burst, initial int64) *limit.Limit {
	t.Helper()
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: micros}, burst, initial)
	if err != nil {
		t.Fatal(err)
	}
	return &limit.Limit{
		Name: name, Unit: limit.RequestsUnit,
		Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
	}
}

func charge(l *limit.Limit, key string, cost int64) limit.Charge {
	return limit.Charge{Limit: l, Settings: &l.Settings, Key: l.Name + ":" + key, Cost: cost}
}

func ask(m *Memory, now int64, charges ...limit.Charge) limit.Decision {
	var d limit.Decision
	m.DecideAt(now, []limit.Request{{Charges: charges}}, []*limit.Decision{&d})
	d.Conclude()
	return d
}

// check reports where the index, the LRU and the heap do not belong together.
func (m *Memory) check() error {
	if len(m.expiry) != m.states.Len() || m.states.Len() > m.most {
		return fmt.Errorf("%d states in the heap, %d in the LRU, at most %d", len(m.expiry), m.states.Len(), m.most)
	}
	for i, s := range m.expiry {
		if kept, ok := m.states.Peek(s.key); !ok || kept != s {
			return fmt.Errorf("%q is in the heap, but not in the LRU", s.key)
		}
		if s.place != i {
			return fmt.Errorf("%q stands at %d, but says %d", s.key, i, s.place)
		}
		if s.due > s.until {
			return fmt.Errorf("%q expires at %d, but is only looked at from %d on", s.key, s.until, s.due)
		}
		if parent := (i - 1) / 2; m.expiry[parent].due > s.due {
			return fmt.Errorf("%q stands below a later one", s.key)
		}
	}
	return nil
}

// TestMemoryIsConsistent makes random requests over a few more keys than fit, with states that
// expire, settings that shorten their lives, clock steps and Forget, and checks the inside after
// each.
func TestMemoryIsConsistent(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		m := newMemory(t, 1+rng.IntN(12))
		limits := []*limit.Limit{
			every(t, "a", 1000, 5, 5), every(t, "b", 1_000_000, 3, 3), every(t, "c", 10, 100, 0), every(t, "d", 50_000, 1, 1),
		}
		now := int64(vectors.Start)
		for step := range 500 {
			switch rng.IntN(10) {
			case 0:
				now -= rng.Int64N(1_000_000)
			case 1:
				now += rng.Int64N(100_000_000)
			default:
				now += rng.Int64N(10_000)
			}
			if rng.IntN(20) == 0 {
				l := limits[rng.IntN(len(limits))]
				l.Settings = every(t, l.Name, 1+rng.Int64N(10_000), 1+rng.Int64N(9), 1).Settings
			}
			var charges []limit.Charge
			for _, i := range rng.Perm(len(limits))[:1+rng.IntN(len(limits))] {
				charges = append(charges, charge(limits[i], fmt.Sprint(rng.IntN(5)), rng.Int64N(4)))
			}
			if rng.IntN(10) == 0 {
				if err := m.Forget(t.Context(), charges[0]); err != nil {
					t.Fatal(err)
				}
			} else {
				ask(m, now, charges...)
			}
			if err := m.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

// TestMakingRoomKeepsTheRequestsOwnStates: a request that needs room for one of its limits while
// the state of another counts as absent, or is the only one left to drop, charges both.
func TestMakingRoomKeepsTheRequestsOwnStates(t *testing.T) {
	fast, slow := every(t, "fast", 1000, 5, 5), every(t, "slow", 3_600_000_000, 5, 5)
	for _, tt := range []struct {
		name  string
		other *limit.Limit
	}{{"absent", fast}, {"alive", slow}} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(t, 1)
			ask(m, vectors.Start, charge(tt.other, "k", 1))
			now := int64(vectors.Start + 1_000_000)
			ask(m, now, charge(slow, "new", 1), charge(tt.other, "k", 3))
			if err := m.check(); err != nil {
				t.Fatal(err)
			}
			left := int64(2)
			if tt.other == slow {
				left = 1
			}
			if d := ask(m, now, charge(tt.other, "k", 0)); d.Verdicts[0].Remaining != left {
				t.Errorf("%d left, want %d", d.Verdicts[0].Remaining, left)
			}
		})
	}
}

// TestAbsentStatesGoFirst: room for a new state is made by dropping what counts as absent, which
// changes no answer and is no eviction; only among live states the least recently used one goes.
func TestAbsentStatesGoFirst(t *testing.T) {
	m := newMemory(t, 3)
	fast, slow := every(t, "fast", 1_000_000, 5, 5), every(t, "slow", 3_600_000_000, 5, 5)
	now := int64(vectors.Start)
	ask(m, now, charge(slow, "old", 1))
	ask(m, now, charge(fast, "a", 1)) // full again after a second
	ask(m, now, charge(slow, "young", 1))

	ask(m, now+999_999, charge(slow, "x", 0)) // a peek needs no room
	ask(m, now+1_000_000, charge(slow, "new", 1))
	if got := testutil.ToFloat64(m.evictions); got != 0 || m.Len() != 3 {
		t.Fatalf("%v evictions, %d states, want 0 and 3", got, m.Len())
	}
	left := func(key string) int64 { return ask(m, now+1_000_000, charge(slow, key, 0)).Verdicts[0].Remaining }
	if left("young") != 4 || left("new") != 4 || left("old") != 4 {
		t.Errorf("left: old %d, young %d, new %d, want 4 each", left("old"), left("young"), left("new"))
	}

	left("young") // the least recently used is now new, then old
	left("old")
	left("young")
	ask(m, now+1_000_000, charge(slow, "newest", 1))
	if got := testutil.ToFloat64(m.evictions); got != 1 || m.Len() != 3 {
		t.Fatalf("%v evictions, %d states, want 1 and 3", got, m.Len())
	}
	if _, kept := m.states.Peek("slow:new"); kept {
		t.Error("the least recently used state stayed")
	}
	if left("old") != 4 || left("young") != 4 || left("newest") != 4 || left("new") != 5 {
		t.Errorf("left: old %d, young %d, newest %d, new %d, want 4, 4, 4, 5", left("old"), left("young"), left("newest"), left("new"))
	}
}

// TestRenewedStatesStay: a state that was charged since it was looked at last is not dropped when
// the time that it had then is over.
func TestRenewedStatesStay(t *testing.T) {
	m := newMemory(t, 2)
	l := every(t, "l", 1_000_000, 5, 5)
	ask(m, vectors.Start, charge(l, "renewed", 1))         // full after 1 s
	ask(m, vectors.Start, charge(l, "gone", 1))            // as well
	ask(m, vectors.Start+900_000, charge(l, "renewed", 4)) // full after 5 s
	ask(m, vectors.Start+1_500_000, charge(l, "new", 1))
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	if d := ask(m, vectors.Start+1_500_000, charge(l, "renewed", 0)); d.Verdicts[0].Remaining != 1 || testutil.ToFloat64(m.evictions) != 0 {
		t.Errorf("%d left of the renewed state after %v evictions, want 1 after 0", d.Verdicts[0].Remaining, testutil.ToFloat64(m.evictions))
	}
}

// TestStatesStayToTheLastMicrosecond: until it is full a state is alive, and when the time comes
// it counts as absent.
func TestStatesStayToTheLastMicrosecond(t *testing.T) {
	for _, tt := range []struct {
		now       int64
		evictions float64
	}{{999_999, 1}, {1_000_000, 0}} {
		m := newMemory(t, 1)
		l := every(t, "l", 500_000, 5, 5)
		ask(m, vectors.Start, charge(l, "k", 1))     // full, and looked at, after 0.5 s
		ask(m, vectors.Start+100, charge(l, "k", 1)) // full after 1 s
		ask(m, vectors.Start+tt.now, charge(l, "new", 1))
		if got := testutil.ToFloat64(m.evictions); got != tt.evictions {
			t.Errorf("room for another at %dµs: %v evictions, want %v", tt.now, got, tt.evictions)
		}
	}
}

// TestTimeIsMonotonic: what the wall clock says counts once, when the Memory is made; from there on
// package time measures by the monotonic reading, if it was not stripped.
func TestTimeIsMonotonic(t *testing.T) {
	m := newMemory(t, 1)
	if text := m.start.String(); !strings.Contains(text, " m=") {
		t.Errorf("the start %s has no monotonic reading", text)
	}
}

// TestRoomIsMadeInSmallSteps: where thousands of states have expired, one call drops some of them.
func TestRoomIsMadeInSmallSteps(t *testing.T) {
	m := newMemory(t, 5*dropAtOnce)
	l := every(t, "l", 1_000_000, 5, 5)
	for i := range m.most {
		ask(m, vectors.Start, charge(l, fmt.Sprint(i), 1))
	}
	now := int64(vectors.Start + 1_000_000)
	for i := range 3 {
		ask(m, now, charge(l, fmt.Sprint("new", i), 1))
	}
	if want := m.most - dropAtOnce + 3; m.Len() != want {
		t.Errorf("%d states, want %d", m.Len(), want)
	}
	if got := testutil.ToFloat64(m.evictions); got != 0 {
		t.Errorf("%v evictions, want 0", got)
	}
}
