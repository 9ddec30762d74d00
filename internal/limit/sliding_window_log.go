package limit

import "slices"

// slidingWindowLog is the arithmetic of sliding_window_log: what was charged within the last Micros
// counts. A state's entries are what was charged, each with the time of its charge as At, and none that
// cost nothing.
type slidingWindowLog Window

func (r *slidingWindowLog) log(s *State, now int64) entryLog {
	return newEntryLog(s.Entries, now, r.Micros)
}

func (r *slidingWindowLog) decide(s *State, now, cost int64) (wait int64, moved bool) {
	moved = r.moveBack(s, now)
	return r.log(s, now).wait(r.Limit, cost, r.Overdraw), moved
}

// moveBack moves entries that are ahead of now to now, since the clock was set back, and reports whether
// there were any. What no longer counted when the newest was charged does not count again.
func (r *slidingWindowLog) moveBack(s *State, now int64) bool {
	newest := entryLog{entries: s.Entries}.newest()
	if newest.At <= now {
		return false
	}
	s.Entries = slices.Clone(s.Entries[countUpTo(s.Entries, newest.At-r.Micros):])
	for i := countUpTo(s.Entries, now); i < len(s.Entries); i++ {
		s.Entries[i].At = now
	}
	return true
}

func (r *slidingWindowLog) charge(s *State, now, cost int64, id string) {
	if cost > 0 {
		s.Entries = r.log(s, now).add(Entry{At: now, Cost: cost, ID: id})
	}
}

func (r *slidingWindowLog) report(s *State, now int64) (left, reset int64) {
	return r.log(s, now).report(r.Limit)
}

// mark returns when the newest entry was charged.
func (r *slidingWindowLog) mark(s *State, now int64) int64 { return r.log(s, now).newest().At }

func (r *slidingWindowLog) until(s *State) int64 {
	if len(s.Entries) == 0 {
		return 0
	}
	return r.log(s, 0).newest().At + r.Micros
}

// settle changes the entry of the decision, and takes it out when it costs nothing in the end.
func (r *slidingWindowLog) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	moved := r.moveBack(s, now)
	changed, ok = settleLog(r, s, r.log(s, now), p, moved)
	if changed && p.Actual == 0 { // then the entries are new ones
		s.Entries = slices.DeleteFunc(s.Entries, func(e Entry) bool { return e.Cost == 0 })
	}
	return changed, ok
}

func (r *slidingWindowLog) list(*State, int64) []Listed { return nil }

// seed is one entry, charged so long ago that it counts for another reset.
func (r *slidingWindowLog) seed(now, left, reset int64) State {
	var s State
	if left < r.Limit && reset > 0 {
		used := r.Limit - left
		s.Entries = []Entry{{At: now + min(reset, r.Micros) - r.Micros, Sum: used, Cost: used}}
	}
	return s
}
