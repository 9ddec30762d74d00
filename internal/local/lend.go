package local

import "github.com/tidegate/tidegate/internal/limit"

// decideAll decides requests in order at now: after what their orders report was taken, and before
// anything is lent. The caller holds mu.
func (m *Memory) decideAll(now int64, requests []limit.Request, decisions []*limit.Decision) {
	for i := range requests {
		for j := range requests[i].Orders {
			m.takeBack(now, &requests[i].Orders[j])
		}
	}
	for i := range requests {
		m.decide(now, &requests[i], decisions[i])
	}
	for i := range requests {
		d := decisions[i]
		d.Leases = d.Leases[:0]
		for j := range requests[i].Orders {
			d.Leases = append(d.Leases, m.lend(now, &requests[i].Orders[j]))
		}
	}
}

// takeBack takes what an order reports. The caller holds mu.
func (m *Memory) takeBack(now int64, o *limit.LeaseOrder) {
	var s step
	c := limit.Charge{Key: o.Key, Settings: o.Settings}
	m.find(&c, &s)
	if o.Settings.TakeBack(&s.next, now, o.Reports) {
		m.store(now, &c, &s)
	}
}

// lend lends what an order wants. The caller holds mu.
func (m *Memory) lend(now int64, o *limit.LeaseOrder) limit.Lease {
	if o.Want <= 0 {
		return limit.Lease{}
	}
	var s step
	c := limit.Charge{Key: o.Key, Settings: o.Settings}
	m.find(&c, &s)
	lease, changed := o.Settings.Lend(&s.next, now, o.Want)
	if changed {
		m.store(now, &c, &s)
	}
	return lease
}
