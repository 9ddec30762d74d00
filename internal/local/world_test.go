package local_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// world is one shared bucket, by the arithmetic that the script mirrors, and a tier that hears of
// its answers. Its times are given, counted from a base in the future: what the tier reads off
// the clock by itself says nothing here.
type world struct {
	t     *testing.T
	tier  *local.Tier
	limit *limit.Limit
	state limit.BucketState
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

func newWorld(t *testing.T, b limit.TokenBucket) *world {
	l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}}
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
	return &limit.Charge{Limit: w.limit, Settings: &w.limit.Settings, Key: key, Cost: cost}
}

// micros is the time that Redis reads at at: cut to a µs.
func (w *world) micros(at time.Duration) int64 { return w.base.Add(at).UnixMicro() }

// answer lets the shared bucket decide cost at at.
func (w *world) answer(at time.Duration, cost int64) limit.Verdict {
	b := &w.limit.Settings.Bucket
	next, wait, moved := b.Decide(w.state, w.micros(at), cost)
	if wait != 0 {
		cost = 0
	}
	if cost > 0 || moved {
		next = b.Charge(next, cost)
		w.state = next
	}
	return limit.Verdict{
		Limit: w.limit, Settings: &w.limit.Settings, Known: true, Allowed: wait == 0,
		Remaining:  next.Tokens,
		RetryAfter: time.Duration(wait) * time.Microsecond,
		ResetAfter: time.Duration(b.TimeToFull(next)) * time.Microsecond,
	}
}

// ask is answer, and the tier hears of it, asked for at asOf.
func (w *world) ask(asOf, at time.Duration, cost int64) {
	v := w.answer(at, cost)
	w.tier.Observe(w.base.Add(asOf), &limit.Charge{Key: key}, &v)
}

// give puts tokens back into the shared bucket.
func (w *world) give(at time.Duration, tokens int64) {
	b := &w.limit.Settings.Bucket
	next, _, _ := b.Decide(w.state, w.micros(at), 0)
	w.state = b.Charge(next, max(-tokens, next.Tokens-b.Burst))
	w.gave = true
}

// want asks the tier about cost at at. A denial must be what the shared bucket says at that time.
func (w *world) want(at time.Duration, cost int64, denied bool) {
	w.t.Helper()
	v, got := w.tier.Deny(w.base.Add(at), w.charge(cost))
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
		w.t.Errorf("at %v: cost %d is denied, but the shared bucket holds %d", at, cost, truth.Remaining)
	}
	if v.Allowed || !v.Known || v.Limit != w.limit || v.Settings != &w.limit.Settings {
		w.t.Errorf("at %v: verdict %+v", at, v)
	}
}
