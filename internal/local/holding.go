package local

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// holding is what this node holds of one key on lease, and what it knows of it. Guarded by its shard's mu.
type holding struct {
	order  limit.LeaseOrder // names the key, in what is said of it later
	lease  limit.Lease      // its Tokens are what is still on hand
	serial int64            // tells it from the others of the shard
	handed int64            // handed out of it
	until  time.Time        // nothing is handed out from then on; zero: there is no lease

	asOf  time.Time     // before the newest answer was asked for; zero: there is none
	left  int64         // what that left in the limit, less what was lent here since
	reset time.Duration // how long it then took until the limit was as if unused

	demand   demand
	ordered  bool          // an order is under way
	coming   int64         // what it may bring, less what waits for it
	answered chan struct{} // closed when it has been answered; nil: nobody waits
}

// holds reports whether there is a lease at now, under settings like these. The caller holds the shard's mu.
func (h *holding) holds(now time.Time, s *limit.Settings) bool {
	return now.Before(h.until) && (h.order.Settings == s || *h.order.Settings == *s)
}

// verdict returns what is known of the limit when a charge was handed out. Its Mark names the lease. The caller
// holds the shard's mu.
func (h *holding) verdict(now time.Time, c *limit.Charge) limit.Verdict {
	left := max(0, h.left) + h.lease.Tokens
	reset := max(0, h.reset-now.Sub(h.asOf)).Microseconds()
	if b := &c.Settings.Bucket; mirrored(c.Settings) {
		reset = b.TimeToFull(limit.BucketState{Tokens: left, Micros: b.Micros})
	}
	v := limit.NewVerdict(c, 0, 0, left, reset)
	v.Mark = h.serial
	return v
}

// spare returns how much of the limit may be taken on lease at now: a quarter of what is likely to be left, or all
// of it as long as no answer has said what is. So of one that is nearly used up nothing is, since what one node
// holds the others would be denied. The caller holds the shard's mu.
func (h *holding) spare(now time.Time, s *limit.Settings) int64 {
	if h.asOf.IsZero() {
		return s.Capacity()
	}
	return max(0, h.left+int64(gainIn(s, now.Sub(h.asOf)))) / 4
}

// giveUp ends the lease, if there is one, and returns what became of it. It must be sent once: whatever
// becomes of that, the lease is over. The caller holds the shard's mu.
func (h *holding) giveUp() (report limit.LeaseReport, ok bool) {
	if h.until.IsZero() {
		return report, false
	}
	report = limit.LeaseReport{Epoch: h.lease.Epoch, Slot: h.lease.Slot, Used: h.handed, Unused: h.lease.Tokens}
	h.lease, h.handed, h.until = limit.Lease{}, 0, time.Time{}
	return report, true
}

// arrive ends the order under way. The caller holds the shard's mu.
func (h *holding) arrive() {
	h.ordered, h.coming = false, 0
	if h.answered != nil {
		close(h.answered)
		h.answered = nil
	}
}

// demand is how much of a key was asked for lately: since a time, and in the span before that. The zero
// demand is none.
type demand struct {
	since       time.Time
	asked       int64
	span        time.Duration
	askedBefore int64
}

// add notes that the charge's cost was asked for. A span lasts half of a hold at least; after two holds without a
// question what was before counts no more.
func (d *demand) add(now time.Time, c *limit.Charge) {
	half := time.Duration(c.Settings.Hold) * time.Microsecond / 2
	switch gone := now.Sub(d.since); {
	case gone >= 4*half:
		*d = demand{since: now}
	case gone >= half:
		*d = demand{since: now, span: gone, askedBefore: d.asked}
	}
	d.asked += c.Cost
}

// want returns how much is to be taken on lease at now, besides the charge's own cost: what else is asked for in
// a quarter of the hold, at most a tenth of the burst or limit. Of less than a quarter of a hold too little is
// known to expect more in the next than in that.
func (d *demand) want(now time.Time, c *limit.Charge) int64 {
	quarter := time.Duration(c.Settings.Hold) * time.Microsecond / 4
	over := max(quarter, d.span+now.Sub(d.since))
	asked := float64(d.askedBefore+max(0, d.asked-c.Cost)) * float64(quarter) / float64(over)
	return min(int64(asked), c.Settings.Capacity()/10)
}
