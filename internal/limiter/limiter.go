// Package limiter is the path of a request: it resolves a question against the rules in force,
// answers what is certain by itself, and asks a store about the rest. It starts no goroutine.
package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

// Store decides requests in one atomic step each, in order.
type Store interface {
	// Decide fills decisions[i] with the answer to requests[i]: Verdicts for its charges in
	// order, and Tier, or Err when it could not be decided: with limit.ErrUnavailable its charges may
	// or may not have been made.
	Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision)

	// Settle does what the settlement says with the charges of its ticket, in one atomic step. It is
	// limit.ErrExpired when the ticket or, to be renewed, a slot has expired, a limit.InvalidError
	// when a debt would be too deep, limit.ErrWrongType, or limit.ErrUnavailable when there is no
	// answer: then asking again is safe.
	Settle(ctx context.Context, s *limit.Settlement) (limit.Settled, error)

	// Forget drops the state under a charge's key, as if it were never used.
	Forget(ctx context.Context, charge limit.Charge) error
}

// Tier knows what the store would deny for certain.
type Tier interface {
	// Deny reports whether the store would deny the charge at now, and sets v to its verdict then.
	Deny(now time.Time, c *limit.Charge, v *limit.Verdict) bool

	// Observe takes over the store's answer to a charge, asked for at asOf or later.
	Observe(asOf time.Time, c *limit.Charge, v *limit.Verdict)

	// Join and Leave stand around a call that asks the store about the charge. While the channel
	// that Join returns instead, if any, is open, an answer under way will most likely decide the
	// charge within patience, which is at most most.
	Join(now time.Time, c *limit.Charge, most time.Duration) (underWay <-chan struct{}, patience time.Duration)
	Leave(c *limit.Charge)

	// BeginCredit and EndCredit stand around a call that gives tokens back under key.
	BeginCredit(key limit.Hash)
	EndCredit(asOf time.Time, key limit.Hash)
}

// Config holds what a Limiter is made of. Every field but Tier and Former is required.
type Config struct {
	Store    Store
	Embedded bool                // the store is this process's own memory: no ticket of another is good here
	Tier     Tier                // nil: every question goes to the store
	Leases   Leases              // nil: leased limits are asked for like strict ones
	Secret   func() limit.Secret // keys the hashes of attribute values, and seals tickets; may change
	Former   func() limit.Secret // the secret before that, by which tickets are still taken; nil, or returns nil: none
	Timeout  time.Duration       // from a request's arrival to the end of its wait for the store
	Rules    *limit.Rules
	Registry prometheus.Registerer
}

// Limiter answers questions. It is safe for concurrent use.
type Limiter struct {
	store    Store
	tier     Tier
	leases   Leases
	secret   func() limit.Secret
	former   func() limit.Secret
	embedded bool
	home     uint64 // names this process in the tickets of what its own memory was charged
	timeout  time.Duration
	metrics  *metrics
	rules    atomic.Pointer[ruleSet]
	hasher   *limit.Hasher
	scratch  sync.Pool // of *scratch
}

// ruleSet is one generation of rules with the counters that belong to them.
type ruleSet struct {
	*limit.Rules
	counters *counters
}

// scratch is the memory of one call of Decide.
type scratch struct {
	keys      limit.Keys
	charges   []limit.Charge
	requests  []limit.Request
	asked     []*limit.Decision
	questions []question
	orders    []limit.LeaseOrder
}

// question is one query on its way: its charges, and what the store is asked of them.
type question struct {
	decision *limit.Decision
	policy   *limit.Policy // nil when the query named none that exists
	charges  []limit.Charge
	asks     limit.Request // what the store is asked besides; its Charges are not set
	ticket   bool          // one is wanted
	direct   bool          // the local tier has no part in it
	lendable bool          // it may be answered from leases
	sent     int           // how many of charges the store is asked; the others can never pass
	joined   int           // how many of charges have joined: others may wait for their answer
}

// New returns a Limiter with the given rules. It is an error when a metric is already registered.
func New(cfg Config) (*Limiter, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, fmt.Errorf("limiter: register metrics: %w", err)
	}
	l := &Limiter{
		store: cfg.Store, tier: cfg.Tier, leases: cfg.Leases, secret: cfg.Secret, former: cfg.Former,
		embedded: cfg.Embedded, home: rand.Uint64() | 1, hasher: limit.NewHasher(), timeout: cfg.Timeout, metrics: m,
	}
	if l.former == nil {
		l.former = func() limit.Secret { return nil }
	}
	l.scratch.New = func() any { return &scratch{keys: limit.Keys{Hasher: l.hasher}} }
	l.SetRules(cfg.Rules)
	return l, nil
}

// SetRules takes the rules over and puts them in force for every question that arrives from now on.
func (l *Limiter) SetRules(rules *limit.Rules) {
	if former := l.rules.Load(); former != nil {
		rules.KeepZones(former.Rules)
	}
	l.rules.Store(&ruleSet{Rules: rules, counters: l.metrics.countersFor(rules)})
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *limit.Rules { return l.rules.Load().Rules }

// Decide answers independent queries, each as a whole, in order: decisions[i] answers
// queries[i]. Its Err is an InvalidError or ErrUnknownPolicy when the query is at fault, and
// ErrUnavailable or ErrWrongType when the store is; nothing else in the decision but Degraded and
// Tier is valid then. With ErrUnavailable charges may have been made. The wait ends when ctx does,
// at the latest at arrival + Timeout; of a question with MaxWait the answer is held back for up to that long after,
// and what was charged is given back when ctx ends meanwhile.
func (l *Limiter) Decide(ctx context.Context, arrival time.Time, queries []limit.Query, decisions []limit.Decision) {
	rules := l.rules.Load()
	s := l.scratch.Get().(*scratch)
	defer l.release(s)
	for i := range queries {
		decisions[i].Reset()
		l.resolve(rules, s, arrival, &queries[i], &decisions[i])
	}
	asked := arrival
	if len(queries) == 1 && l.tier != nil && s.questions[0].sent > 0 {
		defer l.leave(&s.questions[0])
		asked = l.join(ctx, &s.questions[0], arrival)
	}
	l.ask(ctx, s, arrival, asked)
	for i := range s.questions {
		s.questions[i].early()
	}
	elapsed := time.Since(arrival)
	if len(queries) == 1 {
		l.hold(ctx, s)
	}
	for i := range s.questions {
		l.conclude(&s.questions[i], arrival)
		rules.counters.observe(s.questions[i].policy, s.questions[i].decision, elapsed)
	}
}

func (l *Limiter) release(s *scratch) {
	s.keys.Reset()
	clear(s.charges)
	clear(s.requests)
	clear(s.asked)
	clear(s.questions)
	clear(s.orders)
	s.charges, s.requests, s.asked, s.questions, s.orders = s.charges[:0], s.requests[:0], s.asked[:0], s.questions[:0], s.orders[:0]
	l.scratch.Put(s)
}

// next returns the next question, which is empty, as release has left it: clearing one is a good part of what a
// local answer costs.
func (s *scratch) next() *question {
	n := len(s.questions)
	s.questions = slices.Grow(s.questions, 1)[:n+1]
	return &s.questions[n]
}

// resolve turns a query into charges, and counts those that the store is asked: one above its
// limit's capacity never is. A shadow limit's is only reported, any other's decides at once; so does
// what the local tier denies.
func (l *Limiter) resolve(rules *ruleSet, s *scratch, arrival time.Time, q *limit.Query, d *limit.Decision) {
	asked := s.next()
	asked.decision = d
	policy, err := rules.Find(q)
	if err != nil {
		d.Err = err
		return
	}
	asked.policy = policy
	start := len(s.charges)
	s.charges, err = policy.Resolve(q, l.secret(), &s.keys, s.charges)
	asked.charges = s.charges[start:len(s.charges):len(s.charges)]
	if err != nil {
		d.Err = err
		return
	}
	if q.RequestID != "" {
		s.keys.Name(asked.charges)
	}
	if d.Err = asked.prepare(rules.Rules, q); d.Err != nil {
		return
	}
	denied := false
	for i := range asked.charges {
		if c := &asked.charges[i]; c.Cost > c.Settings.Capacity() {
			denied = denied || !c.Limit.Shadow
		} else {
			asked.sent++
		}
	}
	if denied || asked.sent == 0 {
		asked.sent = 0
		d.Tier = limit.TierLocal
		return
	}
	asked.lendable = l.lendable(asked)
	if !l.lent(arrival, asked) {
		l.deniedLocally(arrival, asked)
	}
}

// deniedLocally asks the local tier, and answers with the verdicts of the limits that deny.
func (l *Limiter) deniedLocally(now time.Time, q *question) bool {
	if l.tier == nil || q.direct {
		return false
	}
	d := q.decision
	for i := range q.charges {
		c := &q.charges[i]
		if !deniable(c) {
			continue
		}
		known := len(d.Verdicts)
		d.Verdicts = append(d.Verdicts, limit.Verdict{}) // a verdict is large: it is made where it stays
		if !l.tier.Deny(now, c, &d.Verdicts[known]) {
			d.Verdicts = d.Verdicts[:known]
		}
	}
	if len(d.Verdicts) == 0 {
		return false
	}
	q.sent, q.charges = 0, nil
	d.Tier = limit.TierLocal
	return true
}

// conclude adds the verdicts of the charges that can never pass, in the policy's order, and sums
// up. Without an answer from the store only those are known.
func (l *Limiter) conclude(q *question, arrival time.Time) {
	d := q.decision
	if d.Err != nil {
		return
	}
	answered := d.Verdicts
	if q.sent < len(q.charges) {
		known := d.Verdicts
		d.Verdicts = make([]limit.Verdict, 0, len(q.charges))
		for _, c := range q.charges {
			switch {
			case c.Cost > c.Settings.Capacity():
				d.Verdicts = append(d.Verdicts, neverVerdict(c))
			case len(known) > 0:
				d.Verdicts, known = append(d.Verdicts, known[0]), known[1:]
			}
		}
	}
	d.Conclude()
	if d.Allowed && q.ticket {
		d.Ticket = l.ticketOf(q, answered, arrival).Seal(l.secret())
	}
}

// neverVerdict is the verdict on a cost above the capacity. What is left is known only where
// nothing can ever be left.
func neverVerdict(c limit.Charge) limit.Verdict {
	return limit.Verdict{Limit: c.Limit, Settings: c.Settings, Never: true, Known: c.Settings.Capacity() == 0}
}

// Forget drops the state of one limit for the given attributes. The errors are those of Decide.
func (l *Limiter) Forget(ctx context.Context, name string, attributes limit.Attributes) error {
	q := limit.Query{Limit: name, Attributes: attributes, Peek: true}
	policy, err := l.rules.Load().Find(&q)
	if err != nil {
		return err
	}
	charge, err := policy.Address(&q, l.secret())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if l.tier == nil {
		return l.store.Forget(ctx, charge)
	}
	hash := l.hasher.Hash(charge.Key)
	l.tier.BeginCredit(hash)
	err = l.store.Forget(ctx, charge)
	l.tier.EndCredit(time.Now(), hash)
	return err
}
