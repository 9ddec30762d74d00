package local_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

const start = 1_780_000_000_000_000 // in µs since 1970

func newMemory(t testing.TB, maxKeys int) *local.Memory {
	t.Helper()
	m, err := local.NewMemory(local.MemoryConfig{MaxKeys: maxKeys, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// hourly returns a limit of one token an hour over the given burst.
func hourly(t testing.TB, name string, burst int64) *limit.Limit {
	t.Helper()
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 3_600_000_000}, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	return &limit.Limit{
		Name: name, Unit: limit.RequestsUnit,
		Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
	}
}

func chargeOf(l *limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Limit: l, Settings: &l.Settings, Key: l.Name, Cost: cost}
}

func askAt(m *local.Memory, now int64, charges ...limit.Charge) limit.Decision {
	var d limit.Decision
	m.DecideAt(now, []limit.Request{{Charges: charges}}, []*limit.Decision{&d})
	d.Conclude()
	return d
}

// lefts returns what is left of each limit, charging nothing.
func lefts(m *local.Memory, limits ...*limit.Limit) []int64 {
	var all []int64
	for _, l := range limits {
		all = append(all, askAt(m, start, chargeOf(l, 0)).Verdicts[0].Remaining)
	}
	return all
}

func TestAllOrNothing(t *testing.T) {
	tests := []struct {
		name    string
		costs   [3]int64 // of limits that hold 10, 5 and 2
		shadow  int      // which of them is a shadow; -1 for none
		allowed bool
		passes  [3]bool
		left    [3]int64
	}{
		{"all pass", [3]int64{1, 2, 2}, -1, true, [3]bool{true, true, true}, [3]int64{9, 3, 0}},
		{"the first denies", [3]int64{11, 1, 1}, -1, false, [3]bool{false, true, true}, [3]int64{10, 5, 2}},
		{"the last denies", [3]int64{1, 1, 3}, -1, false, [3]bool{true, true, false}, [3]int64{10, 5, 2}},
		{"all deny", [3]int64{11, 6, 3}, -1, false, [3]bool{}, [3]int64{10, 5, 2}},
		{"peeks pass", [3]int64{}, -1, true, [3]bool{true, true, true}, [3]int64{10, 5, 2}},
		{"a peek among charges", [3]int64{1, 0, 1}, -1, true, [3]bool{true, true, true}, [3]int64{9, 5, 1}},
		{"a shadow that passes is charged", [3]int64{1, 1, 1}, 1, true, [3]bool{true, true, true}, [3]int64{9, 4, 1}},
		{"a shadow that would deny is not, and denies nothing", [3]int64{1, 6, 1}, 1, true, [3]bool{true, false, true}, [3]int64{9, 5, 1}},
		{"a shadow is not charged for a denied request", [3]int64{1, 1, 3}, 1, false, [3]bool{true, true, false}, [3]int64{10, 5, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(t, 0)
			limits := []*limit.Limit{hourly(t, "a", 10), hourly(t, "b", 5), hourly(t, "c", 2)}
			var charges []limit.Charge
			for i, l := range limits {
				l.Shadow = i == tt.shadow
				charges = append(charges, chargeOf(l, tt.costs[i]))
			}
			d := askAt(m, start, charges...)
			if d.Allowed != tt.allowed || d.Tier != limit.TierEmbedded || len(d.Verdicts) != 3 {
				t.Fatalf("got %+v, want allowed %t", d, tt.allowed)
			}
			for i, v := range d.Verdicts {
				if v.Allowed != tt.passes[i] || v.Limit != limits[i] || v.Settings != &limits[i].Settings || !v.Known || v.Remaining != tt.left[i] {
					t.Errorf("verdict of %s: %+v, want allowed %t and %d left", limits[i].Name, v, tt.passes[i], tt.left[i])
				}
			}
			if got := lefts(m, limits...); [3]int64(got) != tt.left {
				t.Errorf("left %v, want %v", got, tt.left)
			}
		})
	}
}

// TestLaterRequestsSeeEarlierOnes: requests of one call are decided in order.
func TestLaterRequestsSeeEarlierOnes(t *testing.T) {
	m, l := newMemory(t, 0), hourly(t, "l", 2)
	requests := make([]limit.Request, 4)
	decisions := make([]*limit.Decision, 4)
	for i := range requests {
		requests[i].Charges = []limit.Charge{chargeOf(l, 1)}
		decisions[i] = &limit.Decision{Verdicts: make([]limit.Verdict, 7)} // left over from another use
	}
	m.Decide(t.Context(), requests, decisions)
	for i, want := range []int64{1, 0, 0, 0} {
		v := decisions[i].Verdicts
		if len(v) != 1 || v[0].Remaining != want || v[0].Allowed != (i < 2) {
			t.Errorf("request %d: %+v, want %d left", i, v, want)
		}
	}
}

// TestNothingIsKeptForNothing: peeks, refusals of a full bucket and costs that never pass create
// no state.
func TestNothingIsKeptForNothing(t *testing.T) {
	m, l, none := newMemory(t, 0), hourly(t, "l", 2), hourly(t, "none", 0)
	askAt(m, start, chargeOf(l, 0))
	askAt(m, start, chargeOf(l, 3))
	askAt(m, start, chargeOf(none, 1))
	askAt(m, start, chargeOf(l, 1), chargeOf(none, 1))
	if m.Len() != 0 {
		t.Errorf("%d states, want none", m.Len())
	}
	askAt(m, start, chargeOf(l, 1))
	if m.Len() != 1 {
		t.Errorf("%d states after a charge, want 1", m.Len())
	}
}

func TestForget(t *testing.T) {
	m, l, other := newMemory(t, 0), hourly(t, "l", 2), hourly(t, "other", 2)
	askAt(m, start, chargeOf(l, 2), chargeOf(other, 1))
	for range 2 { // the second time there is nothing to forget
		if err := m.Forget(t.Context(), chargeOf(l, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if got := lefts(m, l, other); got[0] != 2 || got[1] != 1 || m.Len() != 1 {
		t.Errorf("left %v in %d states, want 2 and 1 in 1", got, m.Len())
	}
}

// TestEvictionsAreCounted: with room for a single state every new key evicts another, and says so.
func TestEvictionsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := local.NewMemory(local.MemoryConfig{MaxKeys: 1, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		askAt(m, start, chargeOf(hourly(t, fmt.Sprint(i), 2), 1))
	}
	if m.Len() != 1 {
		t.Errorf("%d states, want 1", m.Len())
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
	}
	if got["tidegate_local_evictions_total"] != 4 || got["tidegate_local_entries"] != 1 {
		t.Errorf("metrics %v, want 4 evictions and 1 entry", got)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	if _, err := local.NewMemory(local.MemoryConfig{Registry: registry}); err == nil {
		t.Error("metrics that are registered already are no error")
	}
}

// TestConcurrentCallersGetExactlyTheLimit: of a burst of 100, over one limit and over three.
func TestConcurrentCallersGetExactlyTheLimit(t *testing.T) {
	for _, count := range []int{1, 3} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			m := newMemory(t, 0)
			var charges []limit.Charge
			for i := range count {
				charges = append(charges, chargeOf(hourly(t, fmt.Sprint("l", i), int64(100+i)), 1))
			}
			var allowed atomic.Int64
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() {
					for range 30 {
						d := new(limit.Decision)
						m.Decide(t.Context(), []limit.Request{{Charges: charges}}, []*limit.Decision{d})
						if d.Conclude(); d.Allowed {
							allowed.Add(1)
						}
					}
				})
			}
			callers.Wait()
			if got := allowed.Load(); got != 100 {
				t.Errorf("%d allowed, want 100", got)
			}
			for i, c := range charges {
				d := new(limit.Decision)
				if m.Decide(t.Context(), []limit.Request{{Charges: []limit.Charge{chargeOf(c.Limit, 0)}}}, []*limit.Decision{d}); d.Verdicts[0].Remaining != int64(i) {
					t.Errorf("limit %d: %d left, want %d: denied requests were charged", i, d.Verdicts[0].Remaining, i)
				}
			}
		})
	}
}

// TestMemoryKeepsTime: time passes as the process's own clock does, to the microsecond.
func TestMemoryKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newMemory(t, 0), hourly(t, "l", 1)
		steps := []struct {
			wait, retry time.Duration
		}{{0, 0}, {0, time.Hour}, {time.Hour - time.Microsecond, time.Microsecond}, {time.Microsecond, 0}, {30 * time.Minute, 30 * time.Minute}, {100 * time.Hour, 0}, {0, time.Hour}}
		for i, s := range steps {
			time.Sleep(s.wait)
			d := new(limit.Decision)
			m.Decide(t.Context(), []limit.Request{{Charges: []limit.Charge{chargeOf(l, 1)}}}, []*limit.Decision{d})
			if d.Conclude(); d.RetryAfter != s.retry || d.Allowed != (s.retry == 0) {
				t.Errorf("step %d: %+v, want to retry after %v", i, d, s.retry)
			}
		}
	})
}

// TestManyKeysStayUnderTheCap asks for far more keys than fit, none of which expires, and
// measures the memory that is held in the end.
func TestManyKeysStayUnderTheCap(t *testing.T) {
	keys, most := 2_000_000, 100_000
	if testing.Short() {
		keys, most = 100_000, 10_000
	}
	m, l := newMemory(t, most), hourly(t, "l", 5)
	before := heapInUse()
	requests, decisions := []limit.Request{{Charges: []limit.Charge{chargeOf(l, 1)}}}, []*limit.Decision{new(limit.Decision)}
	for i := range keys {
		requests[0].Charges[0].Key = fmt.Sprintf("rl:{requests-per-user~a1b2c3:user-%d}", i)
		m.DecideAt(start+int64(i), requests, decisions)
	}
	if m.Len() != most {
		t.Errorf("%d states, want %d", m.Len(), most)
	}
	perKey := float64(heapInUse()-before) / float64(most)
	t.Logf("%.0f bytes a key", perKey)
	if perKey > 500 {
		t.Errorf("%.0f bytes a key, want at most 500", perKey)
	}
	runtime.KeepAlive(m)
}

// heapInUse returns the bytes in use after a collection.
func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestMemoryUnderContention: callers at once must not make time go backwards for a state, which
// would refill the same time twice.
func TestMemoryUnderContention(t *testing.T) {
	m, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 10}, 1000, 1000)
	if err != nil {
		t.Fatal(err)
	}
	l := &limit.Limit{Name: "fast", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}}
	charge := limit.Charge{Limit: l, Settings: &l.Settings, Key: "k", Cost: 1}
	var admitted atomic.Int64
	start := time.Now()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			decision := new(limit.Decision)
			requests, decisions := []limit.Request{{Charges: []limit.Charge{charge}}}, []*limit.Decision{decision}
			for time.Since(start) < 300*time.Millisecond {
				if m.Decide(t.Context(), requests, decisions); decision.Verdicts[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if most := 1001 + time.Since(start).Microseconds()/10; admitted.Load() > most {
		t.Errorf("admitted %d, want at most %d", admitted.Load(), most)
	}
}
