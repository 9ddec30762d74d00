package local

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/tidegate/tidegate/internal/limit"
)

// TierConfig holds what a Tier is made of.
type TierConfig struct {
	MaxKeys  int                   // keys known at most; 0 means 100,000
	Recheck  time.Duration         // nothing is denied from knowledge older than this; 0 means 1s
	Registry prometheus.Registerer // required
}

// Tier knows of the shared buckets what the shared store's last answers said, and denies from it
// what the store would deny for certain. Each key has an x/time/rate limiter that mirrors its
// bucket: set to the level of the newest answer, dated before the call was sent, and refilled at
// the limit's rate. Other nodes only take, so the mirror is never below the shared bucket; where
// tokens come back elsewhere, a denial is late by at most Recheck. docs/local-tier.md has the
// argument. Dropping a key only costs a call. Safe for concurrent use.
type Tier struct {
	recheck time.Duration
	seed    maphash.Seed
	shards  [tierShards]shard
}

const tierShards = 16

type shard struct {
	mu   sync.Mutex
	keys *simplelru.LRU[string, *entry] // guarded by mu
}

// entry is what is known of one key. Guarded by its shard's mu.
type entry struct {
	settings limit.Settings
	mirror   *rate.Limiter // nil: nothing is known
	level    float64       // of the newest answer
	asOf     time.Time     // the local time before that answer was asked for
	perUs    float64       // the limit's true rate, in tokens per µs
	slack    float64       // what rounding and clock drift may hide
	latest   time.Time     // the latest time the mirror was asked about: it must not go backwards
	credits  int           // credits of our own under way: nothing is denied meanwhile
}

// driftFactor makes the mirror refill a little faster than the limit, for clocks that run apart.
const driftFactor = 1.001

// NewTier returns a Tier that knows nothing. It is an error when a metric is already registered.
func NewTier(cfg TierConfig) (*Tier, error) {
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = 100_000
	}
	if cfg.Recheck <= 0 {
		cfg.Recheck = time.Second
	}
	t := &Tier{recheck: cfg.Recheck, seed: maphash.MakeSeed()}
	for i := range t.shards {
		keys, err := simplelru.NewLRU[string, *entry](max(1, cfg.MaxKeys/tierShards), nil)
		if err != nil {
			return nil, fmt.Errorf("local: make the tier: %w", err)
		}
		t.shards[i].keys = keys
	}
	entries := prometheus.NewGaugeFunc(entriesOpts, func() float64 { return float64(t.Len()) })
	if err := cfg.Registry.Register(entries); err != nil {
		return nil, fmt.Errorf("local: register metrics: %w", err)
	}
	return t, nil
}

// Len returns how many keys are known.
func (t *Tier) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += s.keys.Len()
		s.mu.Unlock()
	}
	return n
}

func (t *Tier) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%tierShards]
}

// Deny reports whether the shared store would deny the charge at now for certain, and its verdict
// then. What is left is an upper bound; the wait is what the store would say, as long as nobody
// else takes. It never denies a peek.
func (t *Tier) Deny(now time.Time, c *limit.Charge) (limit.Verdict, bool) {
	if c.Cost == 0 {
		return limit.Verdict{}, false
	}
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(c.Key)
	if !ok || e.mirror == nil || e.credits > 0 || e.settings != *c.Settings || now.Sub(e.asOf) > t.recheck {
		return limit.Verdict{}, false
	}
	if e.latest.Before(now) {
		e.latest = now
	}
	level := e.mirror.TokensAt(e.latest)
	if level+e.slack >= float64(c.Cost) {
		return limit.Verdict{}, false
	}
	sinceAnswer := e.latest.Sub(e.asOf).Seconds() * 1e6
	wait := math.Ceil((float64(c.Cost)-e.level)/e.perUs - sinceAnswer)
	full := math.Ceil((float64(c.Settings.Bucket.Burst)-e.level)/e.perUs - sinceAnswer)
	return limit.Verdict{
		Limit: c.Limit, Settings: c.Settings, Known: true,
		Remaining:  int64(max(0, level)),
		RetryAfter: microseconds(max(1, wait)),
		ResetAfter: microseconds(max(1, wait, full)),
	}, true
}

// microseconds converts at most 100 years, or the longest Duration.
func microseconds(us float64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/2000) * 1000)
}

// Observe takes over an answer of the shared store to a charge of key, asked for at asOf or
// later. The newest answer wins; one to other settings than the entry's counts as newer only if
// it is.
func (t *Tier) Observe(asOf time.Time, key string, v *limit.Verdict) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(key)
	if !ok {
		e = new(entry)
		s.keys.Add(key, e)
	} else if asOf.Before(e.asOf) {
		return
	}
	e.settings, e.asOf = *v.Settings, asOf
	e.level, e.perUs = levelOf(v)
	e.mirror, e.slack = mirror(asOf, &v.Settings.Bucket, e.level, e.perUs)
}

// levelOf returns the highest level that the shared bucket can have had at the answer, and its
// rate in tokens per µs. An even refill's time to full, which is rounded up to a µs, tells the
// level's fraction; a discrete one may be just about to add a grain.
func levelOf(v *limit.Verdict) (level, perUs float64) {
	b := &v.Settings.Bucket
	perUs = float64(b.Tokens) / float64(b.Micros) * float64(b.Grain)
	if b.Grain > 1 || v.ResetAfter == 0 {
		return min(float64(b.Burst), float64(v.Remaining+b.Grain)), perUs
	}
	level = float64(b.Burst) - perUs*float64(v.ResetAfter.Microseconds()-1)
	return min(level, float64(v.Remaining)+1), perUs
}

// mirror returns a limiter that has level tokens at asOf and refills a little faster than the
// bucket, and the slack that its floating point needs: 1e-6, 2^-28 of the burst, and 1µs of the
// rate. The limiter counts whole tokens, so the whole part is taken from a full one, at the time
// that makes up for the fraction: earlier for one gained already, later for a debt.
func mirror(asOf time.Time, b *limit.TokenBucket, level, perUs float64) (*rate.Limiter, float64) {
	perSecond := perUs * 1e6 * driftFactor
	m := rate.NewLimiter(rate.Limit(perSecond), int(b.Burst))
	whole := max(0, math.Floor(level))
	fraction := microseconds(math.Abs(level-whole) / (perUs * driftFactor))
	if level < whole {
		fraction = -fraction
	}
	m.ReserveN(asOf.Add(-fraction), int(float64(b.Burst)-whole))
	return m, 1e-6 + float64(b.Burst)*0x1p-28 + perUs
}

// Known returns the highest level that the charge's bucket can have at now, and the time of the
// answer that says so; ok is false when nothing is known.
func (t *Tier) Known(now time.Time, c *limit.Charge) (level float64, asOf time.Time, ok bool) {
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.keys.Peek(c.Key)
	if !found || e.mirror == nil || e.settings != *c.Settings {
		return 0, time.Time{}, false
	}
	if e.latest.Before(now) {
		e.latest = now
	}
	since := e.latest.Sub(e.asOf).Seconds() * 1e6
	return min(float64(c.Settings.Bucket.Burst), e.level+since*e.perUs), e.asOf, true
}

// BeginCredit says that this process is about to give tokens back under key: until EndCredit
// nothing is denied there.
func (t *Tier) BeginCredit(key string) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(key)
	if !ok {
		e = new(entry)
		s.keys.Add(key, e)
	}
	e.credits++
}

// EndCredit ends what BeginCredit began, at asOf. What was known before is forgotten, and answers
// to what was asked before are dropped.
func (t *Tier) EndCredit(asOf time.Time, key string) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(key)
	if !ok {
		return // dropped meanwhile: nothing is known
	}
	e.credits = max(0, e.credits-1)
	e.mirror, e.asOf = nil, asOf
}
