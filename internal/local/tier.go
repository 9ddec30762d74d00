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
	MaxKeys  int                   // keys known at most, split evenly over 16 shards; 0 means 100,000
	Recheck  time.Duration         // nothing is denied from knowledge older than this; 0 means 1s
	Registry prometheus.Registerer // required
}

// Tier knows of the shared buckets what the shared store's last answers said, and denies from it
// what the store would deny for certain. Each key has an x/time/rate limiter that mirrors the
// refill of its bucket since the newest answer, dated before the call was sent. Other nodes only
// take, so what the answer left and the refill since are never below the shared bucket; where
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
	gained   *rate.Limiter     // the most grains that the bucket can have gained since asOf; nil: nothing is known
	slack    float64           // grains that rounding may hide
	state    limit.BucketState // of the newest answer; its time counts from asOf
	asOf     time.Time         // the local time before that answer was asked for
	took     time.Duration     // how long after asOf the answer was there
	latest   time.Time         // the latest time that was asked about: it must not go backwards
	credits  int               // credits of our own under way: nothing is denied meanwhile
	pending  int64             // what the questions under way cost together
	answered chan struct{}     // closed at the next answer; nil: nobody waits for one
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
		keys, err := simplelru.NewLRU(max(1, cfg.MaxKeys/tierShards), func(_ string, e *entry) { e.wake() })
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
// then: what it would say if nobody else took anything since its last answer, with a wait that is
// never too short for that, and too long by at most the time which that answer took. It denies
// no peek, and nothing that can never pass.
func (t *Tier) Deny(now time.Time, c *limit.Charge) (limit.Verdict, bool) {
	b := &c.Settings.Bucket
	if c.Cost == 0 || c.Cost > b.Burst {
		return limit.Verdict{}, false
	}
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(c.Key)
	if !ok || e.gained == nil || e.credits > 0 || e.settings != *c.Settings || now.Sub(e.asOf) > t.recheck {
		return limit.Verdict{}, false
	}
	if e.most(now, b) >= c.Cost {
		return limit.Verdict{}, false
	}
	next, wait, _ := b.Decide(e.state, max(0, e.latest.Sub(e.asOf)-e.took).Microseconds(), c.Cost)
	return limit.NewVerdict(c, 0, wait, next.Tokens, b.TimeToFull(next)), true
}

// advance returns now, or the latest time asked about if that is later.
func (e *entry) advance(now time.Time) time.Time {
	if e.latest.Before(now) {
		e.latest = now
	}
	return e.latest
}

// Observe takes over an answer of the shared store to the charge, asked for at asOf or later. The
// newest answer wins, whatever the settings it was given under.
func (t *Tier) Observe(asOf time.Time, c *limit.Charge, v *limit.Verdict) {
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(c.Key)
	if asOf.Before(e.asOf) {
		return
	}
	e.settings, e.asOf, e.took = *v.Settings, asOf, max(0, time.Since(asOf))
	e.mirror(v)
}

// entry returns the entry of key, a new one if need be. The caller holds mu.
func (s *shard) entry(key string) *entry {
	e, ok := s.keys.Get(key)
	if !ok {
		e = new(entry)
		s.keys.Add(key, e)
	}
	return e
}

// mirror takes over what an answer says of the bucket: the tokens left, and through the time to
// full, which is rounded up to a µs, the part of the next grain that is gained already. The
// limiter begins without a grain, that part's time before asOf, and gains what is missing at
// most, a little faster than the bucket. The slack is a millionth of a grain for floating point,
// and a µs of the rate for times cut to a µs.
func (e *entry) mirror(v *limit.Verdict) {
	b := &v.Settings.Bucket
	missing := (max(0, b.Burst-v.Remaining) + b.Grain - 1) / b.Grain
	// At least rem of the grain is gained, in 1/Micros, and less than rem + Tokens. The products
	// may overflow; their difference is small, and exact all the same.
	rem := int64(0)
	if missing > 0 {
		rem = missing*b.Micros - v.ResetAfter.Microseconds()*b.Tokens
	}
	ahead := time.Duration(float64(rem+b.Tokens-1) / float64(b.Tokens) / driftFactor * 1000)
	perUs := float64(b.Tokens) / float64(b.Micros)
	e.gained = rate.NewLimiter(rate.Limit(perUs*1e6*driftFactor), int(missing))
	e.gained.ReserveN(e.asOf.Add(-ahead), int(missing))
	e.slack = 1e-6 + perUs
	e.state = limit.BucketState{Tokens: v.Remaining, Rem: max(0, rem), Until: math.MaxInt64, Micros: b.Micros}
}

// Known returns what the charge's bucket holds at now, if nobody took anything since the newest
// answer, and the time of that answer; ok is false when nothing is known.
func (t *Tier) Known(now time.Time, c *limit.Charge) (tokens int64, asOf time.Time, ok bool) {
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.keys.Peek(c.Key)
	if !found || e.gained == nil || e.settings != *c.Settings {
		return 0, time.Time{}, false
	}
	next, _, _ := c.Settings.Bucket.Decide(e.state, max(0, now.Sub(e.asOf)).Microseconds(), 0)
	return next.Tokens, e.asOf, true
}

// BeginCredit says that this process is about to give tokens back under key: until EndCredit
// nothing is denied there.
func (t *Tier) BeginCredit(key string) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry(key).credits++
}

// EndCredit ends what BeginCredit began, at asOf. What was known before is forgotten, and answers
// to what was asked before are dropped.
func (t *Tier) EndCredit(asOf time.Time, key string) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	e.credits = max(0, e.credits-1)
	e.gained = nil
	if e.asOf.Before(asOf) {
		e.asOf = asOf
	}
}
