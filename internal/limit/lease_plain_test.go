package limit_test

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// storeFaults are rules of the store's side that a test breaks.
type storeFaults struct {
	lazy          bool // refills over a slot's edge at once, with what is out after it
	reportsFirst  bool // takes reports before it refills
	oneSlot       bool // forgets what was lent in a slot when that ends
	latecomers    bool // credits unused tokens of a slot that is forgotten
	moduloTwo     bool // keeps only whether a slot is odd
	lateUsed      bool // lowers the current slot by what is reported as used in a forgotten one
	mortal        bool // lets the key die when the bucket would be full without what is out
	slotsUnmerged bool // keeps both slots as they are when the clock steps back
	sameEpoch     bool // stays in its epoch when the clock steps back
}

// plainStore is a leased bucket written down once more, as plainly as can be: the level is one number, in
// 1/Micros of a token. Its rules can be broken one by one. In a storeState it keeps the level as
// bucket.Tokens.
type plainStore struct {
	settings *limit.Settings
	broken   storeFaults
}

func (p *plainStore) full(s *storeState) int64 {
	b := &p.settings.Bucket
	return (b.Burst - s.lease.Out[0] - s.lease.Out[1]) * b.Micros
}

// refill brings the level to a time.
func (p *plainStore) refill(s *storeState, at int64) {
	s.bucket.Tokens = min(p.full(s), s.bucket.Tokens+(at-s.bucket.At)*p.settings.Bucket.Tokens)
	s.bucket.At = at
}

func (p *plainStore) advance(s *storeState, now int64) {
	b, hold, l := &p.settings.Bucket, p.settings.Hold, &s.lease
	if s.bucket.Micros == 0 || now >= s.bucket.Until {
		*s = storeState{
			bucket: limit.BucketState{Tokens: b.Burst * b.Micros, At: now, Micros: b.Micros},
			lease:  limit.LeaseState{Epoch: now, Slot: now / hold},
		}
		return
	}
	if back := s.bucket.At - now; back > 0 {
		s.bucket.At, s.bucket.Until, l.Slot = now, s.bucket.Until-back, now/hold
		if !p.broken.slotsUnmerged {
			l.Out = [2]int64{l.Out[0] + l.Out[1], 0}
		}
		if !p.broken.sameEpoch {
			l.Epoch++
		}
	}
	for l.Slot < now/hold {
		if !p.broken.lazy {
			p.refill(s, (l.Slot+1)*hold)
		}
		l.Slot++
		l.Out = [2]int64{0, l.Out[0]}
		if p.broken.oneSlot {
			l.Out[1] = 0
		}
	}
	p.refill(s, now)
}

// keep says until when the state is kept.
func (p *plainStore) keep(s *storeState) {
	b := &p.settings.Bucket
	missing := b.Burst*b.Micros - s.bucket.Tokens/b.Micros*b.Micros // a part of a token may be lost
	until := s.bucket.At + 2*p.settings.Hold + (missing+b.Tokens-1)/b.Tokens
	if p.broken.mortal {
		until = s.bucket.At + (missing+b.Tokens-1)/b.Tokens
	}
	s.bucket.Until = max(s.bucket.Until, until)
}

func (p *plainStore) takeBack(s *storeState, now int64, reports []limit.LeaseReport) {
	if s.bucket.Micros == 0 || now >= s.bucket.Until {
		return
	}
	next, changed := *s, now < s.bucket.At
	if !p.broken.reportsFirst {
		p.advance(&next, now)
	}
	for _, r := range reports {
		changed = p.take(&next, r) || changed
	}
	if changed {
		p.advance(&next, now)
		p.keep(&next)
		*s = next
	}
}

// take takes a report, and says whether it counts.
func (p *plainStore) take(s *storeState, r limit.LeaseReport) bool {
	l := &s.lease
	if r.Epoch != l.Epoch {
		return false
	}
	age := l.Slot - r.Slot
	if p.broken.moduloTwo {
		age &= 1
	}
	if age >= 0 && age <= 1 {
		if !p.faulty() && (r.Used > l.Out[age] || r.Unused > l.Out[age]-r.Used) {
			return false
		}
		l.Out[age] = max(0, l.Out[age]-r.Used-r.Unused)
		s.bucket.Tokens += r.Unused * p.settings.Bucket.Micros
		s.bucket.Tokens = min(s.bucket.Tokens, p.full(s))
		return true
	}
	if p.broken.latecomers {
		s.bucket.Tokens = min(s.bucket.Tokens+r.Unused*p.settings.Bucket.Micros, p.full(s))
	}
	if p.broken.lateUsed {
		l.Out[0] = max(0, l.Out[0]-r.Used)
	}
	return p.faulty()
}

// faulty says that a rule is broken: then a report may be of more than is out.
func (p *plainStore) faulty() bool { return p.broken != storeFaults{} }

func (p *plainStore) charge(s *storeState, now, cost int64) (passes bool) {
	next := *s
	p.advance(&next, now)
	cost *= p.settings.Bucket.Micros
	if next.bucket.Tokens < cost {
		if now < s.bucket.At && s.bucket.Micros != 0 {
			p.keep(&next)
			*s = next
		}
		return false
	}
	next.bucket.Tokens -= cost
	p.keep(&next)
	*s = next
	return true
}

func (p *plainStore) lend(s *storeState, now, want int64) limit.Lease {
	next := *s
	p.advance(&next, now)
	n := min(want, next.bucket.Tokens/p.settings.Bucket.Micros)
	if n <= 0 {
		if now < s.bucket.At && s.bucket.Micros != 0 {
			p.keep(&next)
			*s = next
		}
		return limit.Lease{}
	}
	next.bucket.Tokens -= n * p.settings.Bucket.Micros
	next.lease.Out[0] += n
	p.keep(&next)
	*s = next
	return limit.Lease{Epoch: next.lease.Epoch, Slot: next.lease.Slot, Tokens: n, Usable: time.Duration(p.settings.Hold*98/100) * time.Microsecond}
}
