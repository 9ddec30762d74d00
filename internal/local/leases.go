package local

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

// LeasesConfig holds what Leases are made of.
type LeasesConfig struct {
	MaxKeys  int                   // keys known at most, split evenly over 16 shards; 0 means 100,000
	Timeout  time.Duration         // required: how long a call may take that gives tokens back
	Registry prometheus.Registerer // required
}

// Leases are the tokens that this node has taken out of shared limits and may hand out by itself, each for as
// long as its lease lasts. docs/leases.md has the rules, and why with them no limit is exceeded. What is unused goes
// back with the next Order for its key, or by Run when the lease ends. Safe for concurrent use.
type Leases struct {
	timeout time.Duration
	shards  [tierShards]leaseShard
	next    atomic.Int64  // when Run looks again, in ns since 1970; neverLooks: not before it is told
	told    chan struct{} // tells it; has room for one
	used    prometheus.Counter
	unused  prometheus.Counter
}

type leaseShard struct {
	mu     sync.Mutex
	keys   *simplelru.LRU[limit.Hash, *holding] // guarded by mu
	ends   []end                                // of the leases, in order; guarded by mu
	owed   []limit.LeaseOrder                   // reports of leases that nobody knows any more; guarded by mu
	leases int64                                // how many there were; guarded by mu
	closed bool                                 // nothing is lent any more; guarded by mu
}

// end says when the lease on a key ends.
type end struct {
	key limit.Hash
	at  time.Time
}

// NewLeases returns Leases that hold nothing. It is an error when a metric is already registered.
func NewLeases(cfg LeasesConfig) (*Leases, error) {
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = 100_000
	}
	l := &Leases{timeout: cfg.Timeout, told: make(chan struct{}, 1)}
	for i := range l.shards {
		s := &l.shards[i]
		keys, err := simplelru.NewLRU(max(1, cfg.MaxKeys/tierShards), func(_ limit.Hash, h *holding) { s.evict(h) })
		if err != nil {
			return nil, fmt.Errorf("local: make the leases: %w", err)
		}
		s.keys = keys
	}
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_lease_tokens_total",
		Help: "Tokens that this node had on lease and has given up, by use: used or unused.",
	}, []string{"use"})
	if err := cfg.Registry.Register(tokens); err != nil {
		return nil, fmt.Errorf("local: register metrics: %w", err)
	}
	l.used, l.unused = tokens.WithLabelValues("used"), tokens.WithLabelValues("unused")
	return l, nil
}

func (l *Leases) shard(key limit.Hash) *leaseShard { return &l.shards[key[0]%tierShards] }

// Take hands out the charge's cost at now, if there is as much on hand, and reports whether it did. The
// verdict says what is left: on hand, and besides as far as was known when the lease was given.
func (l *Leases) Take(now time.Time, c *limit.Charge) (limit.Verdict, bool) {
	s := l.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.keys.Get(c.Hash)
	if !ok {
		return limit.Verdict{}, false
	}
	h.demand.add(now, c)
	if !h.holds(now, c.Settings) || h.lease.Tokens < c.Cost {
		return limit.Verdict{}, false
	}
	h.lease.Tokens -= c.Cost
	h.handed += c.Cost
	return h.verdict(now, c), true
}

// PutBack undoes a Take that was answered with v, of which nothing was handed out since the rest of its
// request could not be had. Where that lease has been given up meanwhile, it stays used.
func (l *Leases) PutBack(c *limit.Charge, v *limit.Verdict) {
	s := l.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.keys.Peek(c.Hash); ok && !h.until.IsZero() && h.serial == v.Mark {
		h.lease.Tokens += c.Cost
		h.handed -= c.Cost
	}
}

// Order adds to orders what is to be said along with a question about the charge that was not answered from leases:
// what became of the lease there was, which ends now whatever is left of it, and how much is wanted for a further
// one. After that Receive must follow for what was added. Nothing is added while another order for the key is
// under way.
func (l *Leases) Order(now time.Time, c *limit.Charge, orders []limit.LeaseOrder) []limit.LeaseOrder {
	s := l.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.keys.Get(c.Hash)
	if !ok {
		h = new(holding)
		h.demand.add(now, c)
		s.keys.Add(c.Hash, h)
	}
	if h.ordered {
		return orders
	}
	order := limit.LeaseOrder{Limit: c.Limit, Settings: c.Settings, Key: c.Key, Hash: c.Hash}
	if report, ok := h.giveUp(); ok {
		order.Reports = []limit.LeaseReport{report}
		l.count(order.Reports)
	}
	if !s.closed {
		order.Want = min(h.demand.want(now, c), h.spare(now, c.Settings))
	}
	if order.Want == 0 && order.Reports == nil {
		return orders
	}
	h.ordered, h.coming = true, order.Want
	return append(orders, order)
}

// Await returns a channel that closes when the order under way for the charge's key has been answered, if that may
// bring enough for it too; else nil.
func (l *Leases) Await(c *limit.Charge) <-chan struct{} {
	s := l.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.keys.Peek(c.Hash)
	if !ok || !h.ordered || h.coming < c.Cost {
		return nil
	}
	h.coming -= c.Cost
	h.demand.asked = max(0, h.demand.asked-c.Cost) // it is asked for again then
	if h.answered == nil {
		h.answered = make(chan struct{})
	}
	return h.answered
}

// Observe takes over an answer of the store to the charge, asked for at asOf or later.
func (l *Leases) Observe(asOf time.Time, c *limit.Charge, v *limit.Verdict) {
	s := l.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.keys.Peek(c.Hash); ok && v.Known && !asOf.Before(h.asOf) {
		h.asOf, h.left, h.reset = asOf, v.Remaining, v.ResetAfter
	}
}

// Receive takes over what was lent for an order that was made at asOf or later: nothing, when the zero Lease
// or no answer came.
func (l *Leases) Receive(asOf, now time.Time, o *limit.LeaseOrder, lease limit.Lease) {
	s := l.shard(o.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.keys.Peek(o.Hash)
	if ok {
		h.arrive()
	}
	if lease.Tokens == 0 {
		return
	}
	until := asOf.Add(lease.Usable)
	if !ok || s.closed || !h.until.IsZero() || !now.Before(until) {
		late := limit.LeaseReport{Epoch: lease.Epoch, Slot: lease.Slot, Unused: lease.Tokens}
		s.owed = append(s.owed, limit.LeaseOrder{Limit: o.Limit, Settings: o.Settings, Key: o.Key, Hash: o.Hash, Reports: []limit.LeaseReport{late}})
	} else {
		s.leases++
		h.order, h.lease, h.serial, h.until, h.handed = *o, lease, s.leases, until, 0
		h.order.Reports, h.order.Want = nil, 0
		h.left -= lease.Tokens
		s.end(o.Hash, until)
		now = until
	}
	l.tell(now)
}

// end notes when the lease on a key ends. Most end after all others. The caller holds mu.
func (s *leaseShard) end(key limit.Hash, at time.Time) {
	i := len(s.ends)
	for i > 0 && at.Before(s.ends[i-1].at) {
		i--
	}
	s.ends = slices.Insert(s.ends, i, end{key, at})
}

// evict gives up what is held of a key that is dropped. The caller holds mu.
func (s *leaseShard) evict(h *holding) {
	h.arrive()
	s.owe(h)
}

// owe gives up the lease, if there is one, and keeps what became of it until Run says so. The caller holds mu.
func (s *leaseShard) owe(h *holding) {
	if report, ok := h.giveUp(); ok {
		order := h.order
		order.Reports = []limit.LeaseReport{report}
		s.owed = append(s.owed, order)
	}
}

// count counts what became of the tokens that are reported.
func (l *Leases) count(reports []limit.LeaseReport) {
	for i := range reports {
		l.used.Add(float64(reports[i].Used))
		l.unused.Add(float64(reports[i].Unused))
	}
}
