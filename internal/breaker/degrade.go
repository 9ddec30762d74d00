package breaker

import "github.com/tidegate/tidegate/internal/limit"

// degrade answers one request without the shared store. One closed limit refuses it; else its
// local limits decide with this node's share, all or nothing, and its open ones pass. A shadow
// limit refuses nothing.
func (s *Store) degrade(r *limit.Request, d *limit.Decision, cause error) {
	d.Reset()
	d.Degraded, d.Tier = true, limit.TierFallback
	own := *r
	own.Charges = nil
	for _, c := range r.Charges {
		switch {
		case c.Limit.OnRedisFailure == limit.FailClosed && !c.Limit.Shadow:
			d.Err = cause
			return
		case c.Limit.OnRedisFailure == limit.FailLocal:
			own.Charges = append(own.Charges, c)
		}
	}
	if len(own.Charges) > 0 {
		s.share.Decide([]limit.Request{own}, []*limit.Decision{d})
		d.Degraded = true
	}
	if len(own.Charges) < len(r.Charges) {
		d.Verdicts = withOpen(r.Charges, d.Verdicts)
	}
}

// withOpen puts the verdicts of limits that nobody asked among the known ones, in the policy's
// order: they pass, and what is left of them is unknown.
func withOpen(charges []limit.Charge, known []limit.Verdict) []limit.Verdict {
	all := make([]limit.Verdict, 0, len(charges))
	for _, c := range charges {
		if c.Limit.OnRedisFailure == limit.FailLocal {
			all, known = append(all, known[0]), known[1:]
		} else {
			all = append(all, limit.Verdict{Limit: c.Limit, Settings: c.Settings, Allowed: true})
		}
	}
	return all
}
