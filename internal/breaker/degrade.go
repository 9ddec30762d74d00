package breaker

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// degrade answers one request without the shared store. One closed limit refuses it; else its
// local limits decide with this node's share, all or nothing, and its open ones pass. A shadow
// limit refuses nothing. The decision has the request's ID and a time of this process, so that what was
// charged to the share can be settled, also when that is nothing.
func (s *Store) degrade(r *limit.Request, d *limit.Decision, cause error) {
	d.Reset()
	d.Degraded, d.Tier = true, limit.TierFallback
	own := *r
	own.Charges, own.Orders = nil, nil // a share lends nothing
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
	} else {
		now := time.Now().UnixMicro()
		d.ID, d.At, d.Expires = r.ID, now, now+r.Life.Microseconds()
	}
	if d.Err == nil && len(own.Charges) < len(r.Charges) {
		addOpen(r, d)
	}
}

// addOpen puts the verdicts of limits that nobody asked among the known ones, in the policy's
// order: they pass, and what is left of them, or who holds their slots, is unknown.
func addOpen(r *limit.Request, d *limit.Decision) {
	known, lists := d.Verdicts, d.Lists
	d.Verdicts, d.Lists = make([]limit.Verdict, 0, len(r.Charges)), nil
	for _, c := range r.Charges {
		var list []limit.Listed
		if c.Limit.OnRedisFailure == limit.FailLocal {
			d.Verdicts, known = append(d.Verdicts, known[0]), known[1:]
			if len(lists) > 0 {
				list, lists = lists[0], lists[1:]
			}
		} else {
			d.Verdicts = append(d.Verdicts, limit.Verdict{Limit: c.Limit, Settings: c.Settings, Allowed: true})
		}
		if r.List {
			d.Lists = append(d.Lists, list)
		}
	}
}
