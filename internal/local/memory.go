// Package local is the tier in this process: Tier denies what the shared store would deny for
// certain, Memory is a store of its own (the embedded default, without Redis), and Fallback decides
// with this node's share while Redis is away. It starts no goroutine but in Memory.Run.
package local

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

// MemoryConfig holds what a Memory is made of.
type MemoryConfig struct {
	MaxKeys  int                   // states kept at most; 0 means 100,000
	Registry prometheus.Registerer // required
}

// Memory decides requests in this process, with the arithmetic that the Lua scripts mirror. It is
// safe for concurrent use.
//
// It keeps at most MaxKeys states. For a new one it drops states that count as absent first, which
// changes no answer; when all are alive, the least recently used one goes, and its limit begins
// afresh: the one way in which Memory may admit more than a limit.
type Memory struct {
	start     time.Time // with its monotonic reading: steps of the wall clock change nothing
	evictions prometheus.Counter

	mu     sync.Mutex
	states *simplelru.LRU[string, *state] // guarded by mu
	expiry expiryHeap                     // guarded by mu; every state of states
	most   int                            // states kept
	steps  []step                         // of the request that is being decided: memory to use again; guarded by mu
}

// state is one stored state.
type state struct {
	key   string
	state limit.State
	grant *grant // in place of state: a decision that is remembered
	until int64  // from when on it counts as absent
	due   int64  // when it is looked at as expired; never later than until
	place int    // in the heap; -1 once it is dropped
	heard uint64 // of a node's share: the answer that it takes into account; 0: none
}

var entriesOpts = prometheus.GaugeOpts{
	Name: "tidegate_local_entries",
	Help: "Keys known in this process.",
}

// NewMemory returns an empty Memory. It is an error when a metric is already registered.
func NewMemory(cfg MemoryConfig) (*Memory, error) {
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = 100_000
	}
	m := &Memory{
		start: time.Now(),
		most:  cfg.MaxKeys,
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_local_evictions_total",
			Help: "Live states that went to make room for others; each may admit one more burst.",
		}),
	}
	var err error
	if m.states, err = simplelru.NewLRU[string, *state](cfg.MaxKeys, nil); err != nil {
		return nil, fmt.Errorf("local: make the store: %w", err)
	}
	entries := prometheus.NewGaugeFunc(entriesOpts, func() float64 { return float64(m.Len()) })
	for _, c := range []prometheus.Collector{m.evictions, entries} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("local: register metrics: %w", err)
		}
	}
	return m, nil
}

// Len returns how many states are kept, those that count as absent included.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states.Len()
}

// now returns the time in µs since 1970, as the wall clock would show it had it never been set
// since this Memory was made.
func (m *Memory) now() int64 { return m.at(time.Now()) }

// at returns the same for a time of this process.
func (m *Memory) at(t time.Time) int64 { return m.start.UnixMicro() + t.Sub(m.start).Microseconds() }

// Decide decides requests in order, each in one atomic step, and fills decisions. It never fails.
func (m *Memory) Decide(_ context.Context, requests []limit.Request, decisions []*limit.Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The time is read under the lock: a state must not see time go backwards and refill twice.
	m.decideAll(m.now(), requests, decisions)
}

// DecideAt is Decide at a time of the caller's, in µs since 1970: for tests that set the clock, as
// they do the script's.
func (m *Memory) DecideAt(now int64, requests []limit.Request, decisions []*limit.Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decideAll(now, requests, decisions)
}

// decide decides one request at now. The caller holds mu.
func (m *Memory) decide(now int64, r *limit.Request, d *limit.Decision) {
	d.Tier = limit.TierEmbedded
	d.Verdicts = d.Verdicts[:0]
	if r.Grant != "" && m.repeat(now, r, d) {
		return
	}
	d.ID, d.At, d.Expires = r.ID, now, now+r.Life.Microseconds()
	m.steps = slices.Grow(m.steps[:0], len(r.Charges))[:len(r.Charges)]
	passes := true
	for i := range r.Charges {
		c, s := &r.Charges[i], &m.steps[i]
		m.look(now, c, s)
		v := limit.NewVerdict(c, r.MaxWait, s.wait, 0, 0)
		passes = passes && !v.Denies()
	}
	for i := range m.steps {
		m.conclude(now, r, i, &m.steps[i], passes, d)
	}
	clear(m.steps)
	if passes && r.Grant != "" {
		m.remember(now, r, d)
	}
}

// step is one charge on its way.
type step struct {
	stored *state // nil when the key is absent
	next   limit.State
	wait   int64
	moved  bool
}

// look asks the charge's state how long the charge must wait, in to. The caller holds mu.
func (m *Memory) look(now int64, c *limit.Charge, to *step) {
	*to = step{}
	m.find(c, to)
	to.wait, to.moved = c.Settings.Decide(&to.next, now, c.Cost)
}

// find puts the state that is stored under the charge's key into an empty step. The caller holds mu.
func (m *Memory) find(c *limit.Charge, to *step) {
	if stored, ok := m.states.Get(c.Key); ok {
		to.stored, to.next = stored, stored.state
	}
}

// conclude charges what is to be charged for charge i, stores what is to be stored, and reports.
func (m *Memory) conclude(now int64, r *limit.Request, i int, s *step, passes bool, d *limit.Decision) {
	c := &r.Charges[i]
	verdict := limit.NewVerdict(c, r.MaxWait, s.wait, 0, 0)
	cost := c.Cost
	if !passes || !verdict.Allowed {
		cost = 0
	}
	if cost > 0 || s.moved {
		c.Settings.Charge(&s.next, now, cost, r.ID)
		m.store(now, c, s)
	}
	var reset int64
	verdict.Remaining, reset = c.Settings.Report(&s.next, now)
	verdict.ResetAfter = time.Duration(reset) * time.Microsecond
	verdict.Out = c.Settings.Out(&s.next)
	if r.ID != "" && cost > 0 {
		verdict.Mark = c.Settings.Mark(&s.next, now)
	}
	d.Verdicts = append(d.Verdicts, verdict)
	if r.List {
		d.Lists = append(d.Lists, c.Settings.List(&s.next, now))
	}
}

// store keeps the step's state under the charge's key.
func (m *Memory) store(now int64, c *limit.Charge, s *step) {
	until := c.Settings.Until(&s.next)
	if s.stored != nil && s.stored.place >= 0 { // the request's earlier charges may have dropped it
		s.stored.state, s.stored.until = s.next, until
		if until < s.stored.due {
			m.expiry.move(s.stored, until)
		}
		return
	}
	m.add(now, &state{key: c.Key, state: s.next, until: until})
}

// add keeps a new state.
func (m *Memory) add(now int64, fresh *state) {
	if m.states.Len() >= m.most {
		m.makeRoom(now)
	}
	fresh.due = fresh.until
	m.states.Add(fresh.key, fresh)
	m.expiry.push(fresh)
}

// dropAtOnce is how many states one call drops at most: the caller of a call that found more would
// wait for milliseconds, and everybody else with it.
const dropAtOnce = 1000

// makeRoom drops states that count as absent; when there is none, the least recently used one. The
// caller holds mu.
func (m *Memory) makeRoom(now int64) {
	dropped := 0
	for dropped < dropAtOnce && m.isDue(now) {
		dropped += m.lookAtDue(now)
	}
	if dropped > 0 {
		return
	}
	if _, oldest, ok := m.states.RemoveOldest(); ok {
		m.expiry.remove(oldest)
		m.evictions.Inc()
	}
}

func (m *Memory) isDue(now int64) bool { return len(m.expiry) > 0 && m.expiry[0].due <= now }

// lookAtDue drops the state that is due first when it counts as absent, and returns how many it
// dropped; else it finds out when that state is due again.
func (m *Memory) lookAtDue(now int64) int {
	first := m.expiry[0]
	if first.until > now {
		m.expiry.move(first, first.until)
		return 0
	}
	m.expiry.remove(first)
	m.states.Remove(first.key)
	return 1
}

// Run drops the states that count as absent, every second until ctx ends, so that the memory
// falls again when the keys no longer come.
func (m *Memory) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			for m.sweep() && ctx.Err() == nil {
			}
		}
	}
}

// sweep looks at up to dropAtOnce states that are due, and reports whether more are.
func (m *Memory) sweep() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for looked := 0; looked < dropAtOnce && m.isDue(now); looked++ {
		m.lookAtDue(now)
	}
	return m.isDue(now)
}

// Forget makes the state under the charge's key as if it were never used, but for what is out on lease.
func (m *Memory) Forget(_ context.Context, c limit.Charge) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(m.now(), &c)
	return nil
}

// ForgetAt is Forget at a time of the caller's, in µs since 1970: for tests that set the clock.
func (m *Memory) ForgetAt(now int64, c limit.Charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now, &c)
}

func (m *Memory) forget(now int64, c *limit.Charge) {
	var s step
	if m.find(c, &s); s.stored == nil {
		return
	}
	if c.Settings.Forget(&s.next, now) {
		m.store(now, c, &s)
	} else {
		m.drop(s.stored)
	}
}
