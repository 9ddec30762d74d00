package local

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

// TierConfig holds what a Tier is made of.
type TierConfig struct {
	MaxKeys  int                   // keys known at most, split evenly over 16 shards; 0 means 100,000
	Recheck  time.Duration         // nothing is denied from knowledge older than this; 0 means 1s
	Registry prometheus.Registerer // required
}

// Tier knows of the shared limits what the shared store's last answers said, and denies from it
// what the store would deny for certain. For a bucket each key has an x/time/rate limiter that mirrors
// its refill since the newest answer, dated before the call was sent; for windows and logs it
// remembers a denial and how long it holds. Other nodes only take, so what is left in the store is
// never more than that says; where something is given back elsewhere, a denial is late by at most
// Recheck. docs/local-tier.md has the argument. Of concurrency, where that happens all the time, it
// denies nothing. Dropping a key only costs a call. Safe for concurrent use.
type Tier struct {
	recheck time.Duration
	start   time.Time // of the instants
	shards  [tierShards]shard
}

const tierShards = 16

type shard struct {
	mu      sync.Mutex
	keys    *simplelru.LRU[limit.Hash, *entry] // guarded by mu
	answers uint32                             // taken over so far; guarded by mu
}

// instant is a time, counted from a Tier's start: a third of the size of a time.Time.
type instant = time.Duration

// never is before every time.
const never instant = math.MinInt64

// entry is what is known of one key. There are very many, so it is small: its 64 bytes are one of the sizes
// in which Go gives out memory, and with one more it would take 80. Guarded by its shard's mu.
type entry struct {
	settings *limit.Settings // of the newest answer; nil: nothing is known
	asOf     instant         // before that answer was asked for; never: there is none
	left     int64           // what it left
	reset    time.Duration   // how long it took then until the limit was as if unused
	pending  int64           // what the questions under way cost together
	mirror   *mirror         // of a bucket of which little is left; nil: there was no need of one yet
	rare     *rare           // nil: as if it were empty
	answer   uint32          // the answer's number among those of the shard, never 0; the same comes again after 2^32
	took     micros32        // how long after asOf the answer was there
}

// rare is what is known of few keys. Guarded by the mu of its entry.
type rare struct {
	denial   *denial       // of windows and logs; nil: none
	out      int64         // what was out on lease besides what the newest answer left, and may come back
	answered chan struct{} // closed at the next answer; nil: nobody waits for one
	credits  uint32        // credits of our own under way: nothing is denied meanwhile
}

// aside returns what is rare of the entry, to be changed.
func (e *entry) aside() *rare {
	if e.rare == nil {
		e.rare = new(rare)
	}
	return e.rare
}

func (e *entry) out() int64 {
	if e.rare == nil {
		return 0
	}
	return e.rare.out
}

func (e *entry) denial() *denial {
	if e.rare == nil {
		return nil
	}
	return e.rare.denial
}

func (e *entry) credited() bool { return e.rare != nil && e.rare.credits > 0 }

// micros32 is a time in µs, rounded up, of an hour at most.
type micros32 uint32

func microsOf(d time.Duration) micros32 {
	return micros32((min(max(0, d), time.Hour) + time.Microsecond - 1) / time.Microsecond)
}

func (m micros32) duration() time.Duration { return time.Duration(m) * time.Microsecond }

// NewTier returns a Tier that knows nothing. It is an error when a metric is already registered.
func NewTier(cfg TierConfig) (*Tier, error) {
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = 100_000
	}
	if cfg.Recheck <= 0 {
		cfg.Recheck = time.Second
	}
	t := &Tier{recheck: cfg.Recheck, start: time.Now()}
	for i := range t.shards {
		keys, err := simplelru.NewLRU(max(1, cfg.MaxKeys/tierShards), func(_ limit.Hash, e *entry) { e.wake() })
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

// since returns the instant of a time.
func (t *Tier) since(now time.Time) instant { return now.Sub(t.start) }

func (t *Tier) shard(key limit.Hash) *shard { return &t.shards[key[0]%tierShards] }

// Deny reports whether the shared store would deny the charge at now for certain, and fills v, which is empty, with
// its verdict then: what it would say if nobody else took anything since it was asked, with a wait that is
// never too short for that, and too long by at most the time which its answer took; but see denied.
// Of a window or a log, what is left is what that answer left. It denies no peek, and nothing that can
// never pass.
func (t *Tier) Deny(now time.Time, c *limit.Charge, v *limit.Verdict) bool {
	if c.Cost == 0 || c.Cost > c.Settings.Capacity() {
		return false
	}
	s := t.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(c.Hash)
	if !ok || e.credited() || !e.knows(c.Settings) {
		return false
	}
	at := t.since(now)
	if !mirrored(c.Settings) {
		wait := e.denied(at, c.Cost, t.recheck)
		if wait == 0 {
			return false
		}
		reset := max(wait, e.resetAfter(at).Microseconds()) // the two may be of two answers
		refuse(c, v, wait, e.left, reset)
		return true
	}
	if at-e.asOf > t.recheck || e.atLeast() >= c.Cost || e.most(t.start, at) >= c.Cost {
		return false
	}
	wait, left, reset := e.bucketAfter(e.mirror.latest-e.asOf-e.took.duration(), c.Cost)
	refuse(c, v, wait, left, reset)
	return true
}

// refuse fills v, which is empty, with the verdict on a charge that has to wait so many µs. It is NewVerdict in
// place: a verdict is large, and copying it is a good part of what a denial costs.
func refuse(c *limit.Charge, v *limit.Verdict, wait, left, reset int64) {
	v.Limit, v.Settings, v.Known, v.Remaining = c.Limit, c.Settings, true, left
	v.RetryAfter, v.ResetAfter = time.Duration(wait)*time.Microsecond, time.Duration(reset)*time.Microsecond
}

// knows reports whether the newest answer was given under settings like these. The caller holds the
// shard's mu.
func (e *entry) knows(s *limit.Settings) bool {
	return e.settings == s || e.settings != nil && *e.settings == *s
}

// Observe takes over an answer of the shared store to the charge, asked for at asOf or later. The
// newest answer wins, whatever the settings it was given under. Its settings must not change from
// then on.
func (t *Tier) Observe(asOf time.Time, c *limit.Charge, v *limit.Verdict) {
	s := t.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(c.Hash)
	at := t.since(asOf)
	if at < e.asOf {
		return
	}
	if !e.knows(v.Settings) {
		e.forget()
	}
	s.answers = max(1, s.answers+1)
	e.answer = s.answers
	e.settings, e.asOf, e.took = v.Settings, at, microsOf(time.Since(asOf))
	e.left, e.reset = v.Remaining, v.ResetAfter
	if v.Out != e.out() {
		e.aside().out = v.Out
	}
	switch b := &v.Settings.Bucket; {
	case mirrored(v.Settings) && c.Cost == 0 && b.Initial < b.Burst && v.Remaining == b.Initial:
		e.settings = nil // a peek at a bucket that may not exist yet: it will not refill until it does
	case mirrored(v.Settings): // the mirror follows when it is needed
	case v.Settings.Algorithm != limit.ConcurrencyAlgorithm:
		e.remember(c.Cost, v, t.recheck)
	}
}

// entry returns the entry of key, a new one if need be. The caller holds mu.
func (s *shard) entry(key limit.Hash) *entry {
	e, ok := s.keys.Get(key)
	if !ok {
		e = &entry{asOf: never}
		s.keys.Add(key, e)
	}
	return e
}

// forget forgets what was answered, but not when that was asked for. The caller holds the shard's mu.
func (e *entry) forget() {
	e.settings = nil
	if e.rare != nil {
		e.rare.denial = nil
	}
}

// Knowledge is what the newest answer says of a limit at some later time.
type Knowledge struct {
	Left   int64     // below 0 in debt
	Reset  int64     // how many µs it still takes until the limit is as if unused
	AsOf   time.Time // before that answer was asked for
	Answer uint64    // names the answer among those to the key; never 0
}

// Known returns what is known of the charge's limit at now, if nobody took anything since the newest
// answer. Of a window or a log that is what the answer left, until the limit is as if unused. It is
// false when nothing is known.
func (t *Tier) Known(now time.Time, c *limit.Charge) (Knowledge, bool) {
	s := t.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Peek(c.Hash)
	if !ok || !e.knows(c.Settings) {
		return Knowledge{}, false
	}
	at := t.since(now)
	k := Knowledge{AsOf: t.start.Add(e.asOf), Answer: uint64(e.answer)}
	if mirrored(e.settings) {
		_, k.Left, k.Reset = e.bucketAfter(at-e.asOf, 0)
	} else {
		k.Left, k.Reset = e.leftAt(at), e.resetAfter(at).Microseconds()
	}
	return k, true
}

// BeginCredit says that this process is about to give something back under key: until EndCredit
// nothing is denied there.
func (t *Tier) BeginCredit(key limit.Hash) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry(key).aside().credits++
}

// EndCredit ends what BeginCredit began, at asOf. What was known before is forgotten, and answers
// to what was asked before are dropped.
func (t *Tier) EndCredit(asOf time.Time, key limit.Hash) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	if e.credited() { // not when the entry of BeginCredit was dropped
		e.rare.credits--
	}
	e.forget()
	e.asOf = max(e.asOf, t.since(asOf))
}
