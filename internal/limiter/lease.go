package limiter

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Leases are the tokens of leased limits that this node may hand out by itself.
type Leases interface {
	// Take hands out the charge's cost at now if there is as much on hand, and PutBack undoes that.
	Take(now time.Time, c *limit.Charge) (limit.Verdict, bool)
	PutBack(c *limit.Charge, v *limit.Verdict)

	// Await returns a channel that closes when more is on hand, and may be enough for the charge; or nil.
	Await(c *limit.Charge) <-chan struct{}

	// Order adds what is to be said along with a question about the charge. Observe takes over the
	// answer, asked for at asOf or later, and then Receive what was lent for the order.
	Order(now time.Time, c *limit.Charge, orders []limit.LeaseOrder) []limit.LeaseOrder
	Observe(asOf time.Time, c *limit.Charge, v *limit.Verdict)
	Receive(asOf, now time.Time, o *limit.LeaseOrder, lease limit.Lease)
}

// lendable reports whether the question may be answered from leases: when all its limits are leased, and
// nobody needs to know later what was charged.
func (l *Limiter) lendable(q *question) bool {
	if l.leases == nil || q.direct || q.asks.ID != "" || q.asks.List || q.sent < len(q.charges) {
		return false
	}
	for i := range q.charges {
		if q.charges[i].Settings.Hold == 0 {
			return false
		}
	}
	return true
}

// lent answers the question from what is on hand of every limit, or says that it cannot.
func (l *Limiter) lent(now time.Time, q *question) bool {
	if !q.lendable {
		return false
	}
	d := q.decision
	for i := range q.charges {
		v, ok := l.leases.Take(now, &q.charges[i])
		if !ok {
			for j := range d.Verdicts {
				l.leases.PutBack(&q.charges[j], &d.Verdicts[j])
			}
			d.Verdicts = d.Verdicts[:0]
			return false
		}
		d.Verdicts = append(d.Verdicts, v)
	}
	q.sent, q.charges = 0, nil
	d.Tier = limit.TierLease
	return true
}

// order adds to the question what is to be said of leases.
func (l *Limiter) order(now time.Time, s *scratch, q *question) {
	from := len(s.orders)
	for i := range q.charges {
		s.orders = l.leases.Order(now, &q.charges[i], s.orders)
	}
	q.asks.Orders = s.orders[from:len(s.orders):len(s.orders)]
}

// receive takes over what the answer to a request, asked for at asOf or later, says of leased limits, and
// what was lent for its orders: nothing, without an answer.
func (l *Limiter) receive(asOf time.Time, q *question) {
	d, r := q.decision, &q.asks
	if !q.lendable {
		return
	}
	if d.Err == nil && !d.Degraded {
		for i := range d.Verdicts {
			l.leases.Observe(asOf, &r.Charges[i], &d.Verdicts[i])
		}
	}
	now := time.Now()
	for i := range r.Orders {
		var lease limit.Lease
		if i < len(d.Leases) {
			lease = d.Leases[i]
		}
		l.leases.Receive(asOf, now, &r.Orders[i], lease)
	}
}
