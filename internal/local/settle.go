package local

import (
	"context"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// grant is a remembered decision.
type grant struct {
	costs    []int64
	decision limit.Decision
}

// repeat answers a request that was granted before under its Grant, and reports whether it was. The
// caller holds mu.
func (m *Memory) repeat(now int64, r *limit.Request, d *limit.Decision) bool {
	stored, ok := m.states.Get(r.Grant)
	if !ok || stored.grant == nil || now >= stored.until {
		return false
	}
	if !slices.EqualFunc(r.Charges, stored.grant.costs, func(c limit.Charge, cost int64) bool { return c.Cost == cost }) {
		d.Err = limit.OtherCost()
		return true
	}
	own, leases := d.Verdicts, d.Leases
	*d = stored.grant.decision
	d.Leases = leases
	d.Verdicts = append(own, d.Verdicts...)
	for i := range d.Verdicts {
		d.Verdicts[i].Limit, d.Verdicts[i].Settings = r.Charges[i].Limit, r.Charges[i].Settings
	}
	d.Repeated = true
	d.Age = time.Duration(max(0, now-d.At)) * time.Microsecond
	return true
}

// remember keeps a grant under the request's Grant. The caller holds mu.
func (m *Memory) remember(now int64, r *limit.Request, d *limit.Decision) {
	g := &grant{decision: *d}
	g.decision.Verdicts, g.decision.Leases = slices.Clone(d.Verdicts), nil
	for i := range r.Charges {
		g.costs = append(g.costs, r.Charges[i].Cost)
	}
	m.note(now, r.Grant, g, now+max(1, r.GrantTTL.Microseconds()))
}

// note keeps a grant, or that there was something, under key. The caller holds mu.
func (m *Memory) note(now int64, key string, g *grant, until int64) {
	if stored, ok := m.states.Peek(key); ok {
		m.drop(stored)
	}
	m.add(now, &state{key: key, grant: g, until: until})
}

// noted reports whether something was noted under key. The caller holds mu.
func (m *Memory) noted(now int64, key string) bool {
	stored, ok := m.states.Get(key)
	return ok && now < stored.until
}

func (m *Memory) drop(s *state) {
	m.expiry.remove(s)
	m.states.Remove(s.key)
}

// Settle does what the settlement says with the charges of its ticket, which this process has
// decided. It is limit.ErrExpired when the ticket or, for Renew, a slot has expired, and a
// limit.InvalidError when a debt could never be paid; nothing is charged then.
func (m *Memory) Settle(_ context.Context, s *limit.Settlement) (limit.Settled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settle(m.now(), s)
}

// SettleAt is Settle at a time of the caller's, in µs since 1970: for tests that set the clock.
func (m *Memory) SettleAt(now int64, s *limit.Settlement) (limit.Settled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settle(now, s)
}

func (m *Memory) settle(now int64, s *limit.Settlement) (limit.Settled, error) {
	t := s.Ticket
	done := m.noted(now, t.Marker())
	if now >= t.Expires || s.Act == limit.Renew && done {
		return limit.Settled{}, limit.ErrExpired
	}
	answer := limit.Settled{Done: !done, At: now}
	steps := make([]step, len(t.Charges))
	last := m.isLast(now, s)
	for i := range steps {
		if err := m.pay(now, s, i, &steps[i], !done, last); err != nil {
			return limit.Settled{}, err
		}
	}
	for i := range steps {
		c := &t.Charges[i]
		if steps[i].moved {
			m.store(now, c, &steps[i])
		}
		left, reset := c.Settings.Report(&steps[i].next, now)
		v := limit.NewVerdict(c, 0, 0, left, reset)
		v.Out = c.Settings.Out(&steps[i].next)
		answer.Verdicts = append(answer.Verdicts, v)
	}
	if answer.Done && s.Act != limit.Renew {
		m.note(now, t.Marker(), nil, s.MarkedUntil(now))
	}
	return answer, nil
}

// pay settles charge i in step, which it does not store. What is not last keeps all but its slots.
func (m *Memory) pay(now int64, s *limit.Settlement, i int, to *step, do, last bool) error {
	c := &s.Ticket.Charges[i]
	m.find(c, to)
	ok := true
	switch {
	case !do:
		c.Settings.Decide(&to.next, now, 0)
	case s.Act == limit.Renew:
		to.moved = c.Settings.Algorithm == limit.ConcurrencyAlgorithm && c.Cost > 0
		if to.moved && !c.Settings.Renew(&to.next, now, s.Ticket.ID) {
			return limit.ErrExpired
		}
		if !to.moved {
			c.Settings.Decide(&to.next, now, 0)
		}
	default:
		p := s.Payment(i)
		if !last && c.Settings.Algorithm != limit.ConcurrencyAlgorithm {
			p.Actual = p.Charged
		}
		to.moved, ok = c.Settings.Settle(&to.next, now, &p)
	}
	if !ok {
		return s.TooDeep(i)
	}
	return nil
}

// isLast reports whether nothing was charged after a decision in its leaky buckets: else two would be let
// through at one time once it is given back.
func (m *Memory) isLast(now int64, s *limit.Settlement) bool {
	if s.Act != limit.GiveBack {
		return true
	}
	for i := range s.Ticket.Charges {
		c := &s.Ticket.Charges[i]
		if c.Settings.Algorithm != limit.LeakyBucketAlgorithm || c.Cost == 0 {
			continue
		}
		var step step
		m.look(now, &limit.Charge{Settings: c.Settings, Key: c.Key}, &step)
		if _, reset := c.Settings.Report(&step.next, now); now+reset != s.Ticket.Marks[i] {
			return false
		}
	}
	return true
}
