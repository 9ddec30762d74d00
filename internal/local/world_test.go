package local_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// world is one shared limit, by the arithmetic that the script mirrors, and a tier that hears of
// its answers. Its times are given, counted from a base in the future: what the tier reads off
// the clock by itself says nothing here.
type world struct {
	t     *testing.T
	tier  *local.Tier
	limit *limit.Limit
	state limit.State
	base  time.Time
	gave  bool // tokens came back: a denial may be false
}

const key = "rl:{l:u}"

func newTier(t testing.TB, cfg local.TierConfig) *local.Tier {
	t.Helper()
	cfg.Registry = prometheus.NewRegistry()
	tier, err := local.NewTier(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

// deny asks the tier.
func deny(tier *local.Tier, now time.Time, c *limit.Charge) (v limit.Verdict, denied bool) {
	denied = tier.Deny(now, c, &v)
	return v, denied
}

func newWorld(t *testing.T, b limit.TokenBucket) *world {
	return newWorldOf(t, bucketOf(b))
}

func bucketOf(b limit.TokenBucket) limit.Settings {
	return limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}
}

func newWorldOf(t *testing.T, s limit.Settings) *world {
	l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, Settings: s}
	return &world{t: t, tier: newTier(t, local.TierConfig{}), limit: l, base: time.Now().Add(time.Hour)}
}

// even is a bucket of tokens per micros that begins full.
func even(t testing.TB, tokens, micros, burst int64) limit.TokenBucket {
	t.Helper()
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: tokens, Micros: micros}, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func discrete(t testing.TB, tokens int64, every time.Duration, burst int64) limit.TokenBucket {
	t.Helper()
	b, err := limit.NewDiscreteBucket(tokens, every.Microseconds(), burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *world) charge(cost int64) *limit.Charge {
	return &limit.Charge{Limit: w.limit, Settings: &w.limit.Settings, Key: key, Hash: hashOf(key), Cost: cost}
}

// micros is the time that Redis reads at at: cut to a µs.
func (w *world) micros(at time.Duration) int64 { return w.base.Add(at).UnixMicro() }

// answer lets the shared limit decide cost at at.
func (w *world) answer(at time.Duration, cost int64) limit.Verdict {
	return answer(w.limit, &w.state, w.micros(at), cost, "")
}

// answer decides cost by the arithmetic that the script mirrors, and keeps what it charges under id.
func answer(l *limit.Limit, state *limit.State, now, cost int64, id string) limit.Verdict {
	s, next := &l.Settings, *state
	wait, moved := s.Decide(&next, now, cost)
	c := limit.Charge{Limit: l, Settings: s, Cost: cost}
	v := limit.NewVerdict(&c, 0, wait, 0, 0)
	if wait != 0 {
		cost = 0
	}
	if cost > 0 || moved {
		s.Charge(&next, now, cost, id)
		*state = next
	}
	if cost > 0 {
		v.Mark = s.Mark(&next, now)
	}
	var reset int64
	v.Remaining, reset = s.Report(&next, now)
	v.ResetAfter = time.Duration(reset) * time.Microsecond
	return v
}

// ask is answer, and the tier hears of it, asked for at asOf.
func (w *world) ask(asOf, at time.Duration, cost int64) {
	v := w.answer(at, cost)
	w.tier.Observe(w.base.Add(asOf), w.charge(cost), &v)
}

// give puts tokens back into the shared bucket.
func (w *world) give(at time.Duration, tokens int64) {
	b := &w.limit.Settings.Bucket
	next, _, _ := b.Decide(w.state.Bucket, w.micros(at), 0)
	w.state.Bucket = b.Charge(next, max(-tokens, next.Tokens-b.Burst))
	w.gave = true
}

// want asks the tier about cost at at. A denial must be what the store says at that time.
func (w *world) want(at time.Duration, cost int64, denied bool) {
	w.t.Helper()
	v, got := deny(w.tier, w.base.Add(at), w.charge(cost))
	if got != denied {
		w.t.Errorf("at %v: cost %d denied: %v, want %v", at, cost, got, denied)
	}
	if !got || w.gave {
		return
	}
	before := w.state
	truth := w.answer(at, cost)
	w.state = before
	if truth.Allowed {
		w.t.Errorf("at %v: cost %d is denied, but the store has %d left", at, cost, truth.Remaining)
	}
	if v.Allowed || !v.Known || v.Limit != w.limit || v.Settings != &w.limit.Settings {
		w.t.Errorf("at %v: verdict %+v", at, v)
	}
}
