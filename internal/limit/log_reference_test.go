package limit_test

import (
	"math/big"
	"slices"

	"github.com/tidegate/tidegate/internal/limit"
)

// logged is one request in a ledger of requests.
type logged struct {
	id    string
	cost  int64
	start int64
	ends  *big.Rat // from when on it no longer counts
	per   int64    // leaky_bucket_log: the tokens of its rate
}

// end is the first microsecond at which the request no longer counts.
func (e *logged) end() int64 { return ceilOf(e.ends) }

// logLedger is what the two logs promise, told with exact times and by counting all over again: a list of
// requests, of which those count that have not ended.
type logLedger struct {
	all []*logged
}

func (l *logLedger) last() *logged {
	if len(l.all) == 0 {
		return nil
	}
	return l.all[len(l.all)-1]
}

// forget leaves out what has ended by now.
func (l *logLedger) forget(now int64) {
	l.all = slices.DeleteFunc(l.all, func(e *logged) bool { return e.end() <= now })
}

// back sets the ledger back to now when the newest request is ahead of it, and reports whether it is.
func (l *logLedger) back(s *limit.Settings, now int64) bool {
	last := l.last()
	if last == nil || last.start <= now {
		return false
	}
	distance := last.start - now
	l.forget(last.start)
	for _, e := range l.all {
		if s.Algorithm == limit.LeakyBucketLogAlgorithm {
			e.start -= distance
			e.ends.Sub(e.ends, ratOf(distance))
		} else if e.start > now {
			e.start, e.ends = now, ratOf(now+s.Window.Micros)
		}
	}
	return true
}

// used is what counts at a time.
func (l *logLedger) used(at int64) (sum int64) {
	for _, e := range l.all {
		if e.end() > at {
			sum += e.cost
		}
	}
	return sum
}

// wait is how long cost must wait: until one of the requests that count has ended.
func (l *logLedger) wait(s *limit.Settings, now, cost int64) int64 {
	if cost > s.Capacity() {
		return limit.Never
	}
	times := []int64{now}
	for _, e := range l.all {
		if e.end() > now {
			times = append(times, e.end())
		}
	}
	slices.Sort(times)
	for _, at := range times {
		if l.used(at)+cost <= s.Capacity() {
			return at - now
		}
	}
	return limit.Never
}

func (l *logLedger) reset(now int64) (reset int64) {
	for _, e := range l.all {
		reset = max(reset, e.end()-now)
	}
	return reset
}

func (l *logLedger) charge(s *limit.Settings, now, cost int64, id string) {
	e := &logged{id: id, cost: cost, start: now}
	if s.Algorithm == limit.LeakyBucketLogAlgorithm {
		e.per = s.Bucket.Tokens
		e.ends = l.begins(s, now)
		e.ends.Add(e.ends, new(big.Rat).Quo(ratOf(cost), perMicro(&s.Bucket)))
		if latest := ratOf(now + century); e.ends.Cmp(latest) > 0 {
			e.ends = latest
		}
	} else {
		e.ends = ratOf(now + s.Window.Micros)
	}
	l.forget(now)
	l.all = append(l.all, e)
}

// begins is when the bucket begins to drain what is charged now. The fraction of a microsecond is known in
// parts of the rate's tokens, of each rate its own; it is rounded to what drains later.
func (l *logLedger) begins(s *limit.Settings, now int64) *big.Rat {
	last := l.last()
	if last == nil || last.end() <= now {
		return ratOf(now)
	}
	short := new(big.Rat).Sub(ratOf(last.end()), last.ends)
	if last.per != s.Bucket.Tokens {
		short.SetFrac64(floorOf(short.Mul(short, ratOf(s.Bucket.Tokens))), s.Bucket.Tokens)
	}
	return short.Sub(ratOf(last.end()), short)
}

// settle does what Settle does.
func (l *logLedger) settle(s *limit.Settings, now int64, p *limit.Payment) (changed, ok bool) {
	moved := l.back(s, now)
	used := l.used(now)
	i := slices.IndexFunc(l.all, func(e *logged) bool { return e.id == p.ID && e.end() > now })
	switch {
	case p.Actual == p.Charged || p.Charged > 0 && i < 0:
		return moved, true
	case used+p.Actual-p.Charged > limit.MaxNumber:
		return false, false
	case p.Charged == 0:
		before := slices.Clone(l.all)
		if l.charge(s, now, p.Actual, p.ID); s.Algorithm == limit.LeakyBucketLogAlgorithm && l.last().end() >= now+century {
			l.all = before
			return false, false
		}
	case p.Actual == 0 && s.Algorithm == limit.SlidingWindowLogAlgorithm:
		l.all = slices.Delete(l.all, i, i+1)
	default:
		l.all[i].cost = p.Actual
	}
	l.forget(now)
	return true, true
}

func (l *logLedger) list(s *limit.Settings, now int64) (all []limit.Listed) {
	if s.Algorithm != limit.LeakyBucketLogAlgorithm {
		return nil
	}
	for _, e := range l.all {
		if e.end() > now && len(all) < 100 {
			all = append(all, limit.Listed{Cost: e.cost, Age: now - e.start, Due: e.end() - now})
		}
	}
	return all
}
