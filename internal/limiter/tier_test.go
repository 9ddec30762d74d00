package limiter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// fakeTier denies the limits that it is told to, and writes down what it is told and asked.
type fakeTier struct {
	deny map[string]time.Duration
	log  []string
	at   []time.Time
}

func (f *fakeTier) Deny(now time.Time, c *limit.Charge, v *limit.Verdict) bool {
	f.log, f.at = append(f.log, "deny "+c.Limit.Name), append(f.at, now)
	wait := f.deny[c.Limit.Name]
	*v = limit.Verdict{Limit: c.Limit, Settings: c.Settings, Known: true, RetryAfter: wait}
	return wait > 0
}

func (f *fakeTier) Observe(asOf time.Time, c *limit.Charge, v *limit.Verdict) {
	key := c.Key
	if !strings.HasPrefix(key, "rl:{"+v.Limit.Name+"~") {
		key = "the wrong key " + key
	} else {
		key = v.Limit.Name
	}
	f.log, f.at = append(f.log, fmt.Sprint("observe ", key, " ", v.Remaining)), append(f.at, asOf)
}

// Join and Leave are tested with the real tier.
func (f *fakeTier) Join(time.Time, *limit.Charge, time.Duration) (<-chan struct{}, time.Duration) {
	return nil, 0
}
func (f *fakeTier) Leave(*limit.Charge) {}

func (f *fakeTier) BeginCredit(limit.Hash)          { f.log = append(f.log, "begin") }
func (f *fakeTier) EndCredit(time.Time, limit.Hash) { f.log = append(f.log, "end") }

func TestTier(t *testing.T) {
	tests := []struct {
		name       string
		deny       map[string]time.Duration
		broken     map[string]error
		query      limit.Query
		log        []string
		asked      bool
		verdicts   string
		tier       limit.Tier
		retryAfter time.Duration
	}{
		{"what passes is asked, and its answer observed", nil, nil, query("ab", "u", 1),
			[]string{"deny a", "deny b", "observe a 9", "observe b 4"}, true, "a allowed, b allowed", limit.TierRedis, 0},
		{"what it denies is not asked", map[string]time.Duration{"b": time.Second}, nil, query("ab", "u", 1),
			[]string{"deny a", "deny b"}, false, "b denied", limit.TierLocal, time.Second},
		{"every denying limit is listed", map[string]time.Duration{"a": time.Minute, "b": time.Second}, nil, query("ab", "u", 1),
			[]string{"deny a", "deny b"}, false, "a denied, b denied", limit.TierLocal, time.Minute},
		{"a shadow is always asked", map[string]time.Duration{"s": time.Second}, nil, query("sa", "u", 1),
			[]string{"deny a", "observe s 2", "observe a 9"}, true, "s allowed, a allowed", limit.TierRedis, 0},
		{"a shadow's never is not observed", nil, nil, query("sa", "u", 4),
			[]string{"deny a", "observe a 6"}, true, "s never, a allowed", limit.TierRedis, 0},
		{"a never does not come that far", nil, nil, query("ab", "u", 6), nil, false, "b never", limit.TierLocal, 0},
		{"nothing is learnt from a failed request", nil, map[string]error{"b": limit.ErrWrongType}, query("ab", "u", 1),
			[]string{"deny a", "deny b"}, true, "a allowed, b allowed", limit.TierRedis, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tier := &fakeTier{deny: tt.deny}
			b := newBench(t, &fakeStore{broken: tt.broken}, tier)
			arrival := time.Now().Add(-time.Millisecond)
			decisions := make([]limit.Decision, 1)
			b.Decide(t.Context(), arrival, []limit.Query{tt.query}, decisions)
			d := &decisions[0]
			if !slices.Equal(tier.log, tt.log) {
				t.Errorf("the tier saw %q, want %q", tier.log, tt.log)
			}
			for _, at := range tier.at {
				if !at.Equal(arrival) {
					t.Errorf("the tier was given %v, want the arrival %v", at, arrival)
				}
			}
			if asked := len(b.store.calls) > 0; asked != tt.asked {
				t.Errorf("the store was asked: %t", asked)
			}
			if verdicts(d) != tt.verdicts || d.Tier != tt.tier || d.RetryAfter != tt.retryAfter {
				t.Errorf("got %+v, want %q by %v", d, tt.verdicts, tt.tier)
			}
		})
	}
}

// TestNothingIsLearntFromElsewhere: neither a degraded answer nor a failed call says what the
// store holds.
func TestNothingIsLearntFromElsewhere(t *testing.T) {
	for name, store := range map[string]*fakeStore{"degraded": {degraded: true}, "failed": {err: limit.ErrUnavailable}} {
		tier := &fakeTier{}
		newBench(t, store, tier).decide(query("ab", "u", 1))
		if want := []string{"deny a", "deny b"}; !slices.Equal(tier.log, want) {
			t.Errorf("%s: the tier saw %q, want %q", name, tier.log, want)
		}
	}
}

// TestForgetIsACredit: the tier is told before and after, also when the store fails.
func TestForgetIsACredit(t *testing.T) {
	for _, err := range []error{nil, limit.ErrUnavailable} {
		tier := &fakeTier{}
		b := newBench(t, &fakeStore{err: err}, tier)
		if got := b.Forget(t.Context(), "a", limit.Attributes{{Name: "user", Value: "u"}}); got != err {
			t.Errorf("got %v, want %v", got, err)
		}
		if want := []string{"begin", "end"}; !slices.Equal(tier.log, want) {
			t.Errorf("the tier saw %q, want %q", tier.log, want)
		}
	}
}
