package limit

// leasedBucket is the arithmetic of a token bucket of which nodes hold tokens on lease. What is out counts
// as part of the bucket: it holds at most its burst less that. docs/leases.md says why no node, and no
// number of them, can pass more than the strict bucket would. lua/leased_bucket.lua mirrors it: change
// both, and testdata/leased_bucket.json, together.
type leasedBucket Settings

// under returns the bucket while so many tokens are out.
func (r *leasedBucket) under(out int64) *TokenBucket {
	b := r.Bucket
	b.Burst = max(b.Burst-out, b.Lowest)
	return &b
}

// edge returns when the current slot ends.
func (r *leasedBucket) edge(l *LeaseState) int64 { return (l.Slot + 1) * r.Hold }

func (r *leasedBucket) absent(s *State, now int64) bool {
	return s.Bucket.Micros == 0 || now >= s.Bucket.Until
}

func (r *leasedBucket) decide(s *State, now, cost int64) (wait int64, moved bool) {
	b := &r.Bucket
	if r.absent(s, now) {
		*s = State{
			Bucket: BucketState{Tokens: b.Initial, At: now, Micros: b.Micros},
			Lease:  LeaseState{Epoch: now, Slot: now / r.Hold},
		}
		moved = cost > 0 && cost <= b.Burst && b.Initial < b.Burst
	} else {
		moved = r.advance(s, now)
	}
	if cost > b.Burst {
		return Never, moved
	}
	return r.wait(s, now, cost), moved
}

// advance brings a state that is not absent to now, and reports whether the clock was set back. At
// each edge of a slot it first refills up to there with what was out before: refilled at once, the whole
// time would count as if that had never been out.
func (r *leasedBucket) advance(s *State, now int64) (back bool) {
	l, until := &s.Lease, s.Bucket.Until
	if now < s.Bucket.At {
		back = true
		until -= s.Bucket.At - now
		l.stepBack(now / r.Hold)
	}
	for l.out() > 0 && r.edge(l) <= now {
		s.Bucket = r.under(l.out()).advance(s.Bucket, r.edge(l))
		l.turn()
	}
	s.Bucket = r.under(l.out()).advance(s.Bucket, now)
	s.Bucket.Until = until
	l.Slot = now / r.Hold
	return back
}

// wait returns how many µs after now the state holds cost, if nobody takes or reports anything: slot by
// slot, since what is out holds the refill up until it is forgotten.
func (r *leasedBucket) wait(s *State, now, cost int64) int64 {
	bucket, l := s.Bucket, s.Lease
	for l.out() > 0 {
		b, edge := r.under(l.out()), r.edge(&l)
		if cost <= b.Burst {
			if at := bucket.At + b.Wait(bucket, cost); at <= edge {
				return at - now
			}
		}
		bucket = b.advance(bucket, edge)
		l.turn()
	}
	return bucket.At + r.Bucket.Wait(bucket, cost) - now
}

// charge takes cost from the state. It is kept for two holds more than it takes to fill the bucket: until
// every lease is over, and forgotten. The part of a token that is gained already does not count: it is lost
// when what is out stops the refill.
func (r *leasedBucket) charge(s *State, _, cost int64, _ string) {
	least, rem := s.Bucket.Until, s.Bucket.Rem
	s.Bucket.Until, s.Bucket.Rem = 0, 0
	s.Bucket = r.Bucket.Charge(s.Bucket, cost)
	s.Bucket.Until, s.Bucket.Rem = max(least, s.Bucket.Until+2*r.Hold), rem
}

func (r *leasedBucket) report(s *State, now int64) (left, reset int64) {
	return s.Bucket.Tokens, r.wait(s, now, r.Bucket.Burst)
}

func (r *leasedBucket) mark(s *State, now int64) int64 { return now + r.wait(s, now, r.Bucket.Burst) }

func (r *leasedBucket) until(s *State) int64 { return s.Bucket.Until }

func (r *leasedBucket) list(*State, int64) []Listed { return nil }

func (r *leasedBucket) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	absent := r.absent(s, now)
	_, moved := r.decide(s, now, 0)
	more := p.Actual - p.Charged
	if more == 0 || absent && more < 0 {
		if absent || !moved {
			return false, true
		}
		more = 0
	} else if s.Bucket.Tokens-more < r.Bucket.Lowest {
		return false, false
	}
	r.credit(s, -more)
	r.charge(s, now, 0, "")
	return true, true
}

// credit gives tokens back, or takes some, but never fills the bucket above what is out.
func (r *leasedBucket) credit(s *State, tokens int64) {
	s.Bucket.Tokens += tokens
	if full := r.under(s.Lease.out()).Burst; s.Bucket.Tokens >= full {
		s.Bucket.Tokens, s.Bucket.Rem = full, 0
	}
}

func (r *leasedBucket) seed(now, left, reset int64) State {
	s := (*bucketRule)(&r.Bucket).seed(now, left, reset)
	s.Lease = LeaseState{Epoch: now, Slot: now / r.Hold}
	return s
}

func (r *leasedBucket) takeBack(s *State, now int64, reports []LeaseReport) (changed bool) {
	if r.absent(s, now) {
		return false
	}
	changed = r.advance(s, now)
	for i := range reports {
		if unused, ok := s.Lease.take(&reports[i]); ok {
			r.credit(s, unused)
			changed = true
		}
	}
	if changed {
		r.charge(s, now, 0, "")
	}
	return changed
}

func (r *leasedBucket) lend(s *State, now, want int64) (lease Lease, changed bool) {
	_, changed = r.decide(s, now, 0)
	if n := min(want, s.Bucket.Tokens); n > 0 {
		lease = s.Lease.lend(n, r.Hold)
		r.charge(s, now, n, "")
		return lease, true
	}
	if changed {
		r.charge(s, now, 0, "")
	}
	return Lease{}, changed
}

// forget fills a bucket of which something is out as far as any settings of its key let it be filled.
func (r *leasedBucket) forget(s *State, now int64) (kept bool) {
	if r.absent(s, now) {
		return false
	}
	r.advance(s, now)
	if s.Lease.out() == 0 {
		return false
	}
	s.Bucket.Tokens, s.Bucket.Rem, s.Bucket.Until = r.Bucket.Initial, 0, 0
	if r.Bucket.Initial == r.Bucket.Burst {
		s.Bucket.Tokens = MaxNumber
	}
	r.charge(s, now, 0, "")
	return true
}
