package limiter

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// ask puts every open question to the store in one call at asked, and tells the local tier the
// answers.
func (l *Limiter) ask(ctx context.Context, s *scratch, arrival, asked time.Time) {
	for i := range s.questions {
		q := &s.questions[i]
		if q.sent == 0 {
			continue
		}
		s.keys.Name(q.charges)
		q.asks.Charges, q.asks.Deadline = q.charges, arrival.Add(l.timeout)
		if q.sent < len(q.charges) {
			q.asks.Charges = possible(q.charges)
		}
		if q.lendable {
			l.order(asked, s, q)
		}
		s.requests = append(s.requests, q.asks)
		s.asked = append(s.asked, q.decision)
	}
	if len(s.requests) == 0 {
		return
	}
	if s.requests[0].MaxWait > 0 {
		ctx = context.WithoutCancel(ctx) // a caller that goes away meanwhile gives back what it then holds
	}
	l.store.Decide(ctx, s.requests, s.asked)
	for i := range s.questions {
		if s.questions[i].sent > 0 {
			l.receive(asked, &s.questions[i])
		}
	}
	for i, d := range s.asked {
		if d.Err != nil || d.Degraded || l.tier == nil || d.Repeated {
			continue
		}
		for j := range d.Verdicts {
			l.tier.Observe(asked, &s.requests[i].Charges[j], &d.Verdicts[j])
		}
	}
}

// possible returns the charges that can pass.
func possible(charges []limit.Charge) []limit.Charge {
	var kept []limit.Charge
	for _, c := range charges {
		if c.Cost <= c.Settings.Capacity() {
			kept = append(kept, c)
		}
	}
	return kept
}
