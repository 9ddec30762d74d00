package limit

import (
	"math"
	"slices"
)

// leakyBucketLog is the arithmetic of leaky_bucket_log: requests wait in the bucket, which drains them one
// after the other at its rate; what waits counts. A state's entries are the requests, each with the time at
// which it has drained as At, to the fraction with Short.
type leakyBucketLog TokenBucket

func (r *leakyBucketLog) log(s *State, now int64) entryLog { return newEntryLog(s.Entries, now, 0) }

func (r *leakyBucketLog) decide(s *State, now, cost int64) (wait int64, moved bool) {
	moved = r.moveBack(s, now)
	return r.log(s, now).wait(r.Burst, cost, r.Overdraw), moved
}

// moveBack moves all that waits back by as much as the newest entry was charged ahead of now, since the
// clock was set back, and reports whether it was: nothing has drained meanwhile, and nothing is lost.
func (r *leakyBucketLog) moveBack(s *State, now int64) bool {
	newest := entryLog{entries: s.Entries}.newest()
	back := newest.Start - now
	if back <= 0 {
		return false
	}
	s.Entries = slices.Clone(s.Entries[countUpTo(s.Entries, newest.Start):])
	for i := range s.Entries {
		s.Entries[i].At -= back
		s.Entries[i].Start -= back
	}
	return true
}

func (r *leakyBucketLog) charge(s *State, now, cost int64, id string) {
	if cost == 0 {
		return
	}
	l := r.log(s, now)
	e := Entry{At: now, Cost: cost, Start: now, Per: r.Tokens, ID: id}
	if last := l.newest(); last.At > now {
		e.At, e.Short = last.At, r.short(&last)
	}
	r.drain(&e)
	s.Entries = l.add(e)
}

// short returns by how much the entry's At is rounded up, in 1/Tokens µs.
func (r *leakyBucketLog) short(e *Entry) int64 {
	if e.Per == r.Tokens {
		return e.Short
	}
	// In float64, as Lua does it: the product may be above 2^53.
	short := math.Floor(float64(e.Short) * float64(r.Tokens) / float64(e.Per))
	return min(int64(short), r.Tokens-1)
}

// drain moves At and Short, which say when the bucket has drained what was there before, on by the Cost ×
// Micros ÷ Tokens that the entry itself takes, without forming Cost × Micros, which may be above 2^53. No
// entry takes longer than 100 years from its Start: with settlements, which give no time back, or with a
// node's share it could.
func (r *leakyBucketLog) drain(e *Entry) {
	rounds := e.Cost / r.Tokens
	if rounds <= maxFill/r.Micros {
		part := e.Cost%r.Tokens*r.Micros - e.Short
		whole := ceilDiv(part, r.Tokens)
		e.At += rounds*r.Micros + whole
		e.Short = whole*r.Tokens - part
	}
	if latest := e.Start + maxFill; e.At > latest || rounds > maxFill/r.Micros {
		e.At, e.Short = latest, 0
	}
}

func (r *leakyBucketLog) report(s *State, now int64) (left, reset int64) {
	return r.log(s, now).report(r.Burst)
}

// mark returns when the newest entry has drained.
func (r *leakyBucketLog) mark(s *State, now int64) int64 { return r.log(s, now).newest().At }

func (r *leakyBucketLog) until(s *State) int64 { return r.log(s, 0).newest().At }

// settle changes what the entry of the decision costs, but not when it or another has drained. One that
// costs nothing in the end stays until then. What nothing was charged for is too deep when it takes 100
// years to drain.
func (r *leakyBucketLog) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	moved := r.moveBack(s, now)
	changed, ok = settleLog(r, s, r.log(s, now), p, moved)
	if ok && p.Charged == 0 && p.Actual > 0 && r.log(s, now).newest().At >= now+maxFill {
		return false, false
	}
	return changed, ok
}

func (r *leakyBucketLog) list(s *State, now int64) []Listed {
	live := r.log(s, now).live()
	var all []Listed
	for _, e := range live[:min(len(live), maxListed)] {
		all = append(all, Listed{Cost: e.Cost, Age: now - e.Start, Due: e.At - now})
	}
	return all
}

// seed is one request that has drained after reset.
func (r *leakyBucketLog) seed(now, left, reset int64) State {
	var s State
	if left < r.Burst && reset > 0 {
		used := r.Burst - left
		s.Entries = []Entry{{At: now + min(reset, maxFill), Sum: used, Cost: used, Start: now, Per: r.Tokens}}
	}
	return s
}
