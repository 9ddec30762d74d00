package limit

import (
	"cmp"
	"slices"
)

// concurrency is the arithmetic of concurrency. A state's entries are the holders in the order in which
// their slots expire. In front stand those that have expired and were not removed yet: they hold nothing.
type concurrency Slots

// listedSlots is of how many holders, those that expire first, the oldest are listed.
const listedSlots = 1000

// decide says how long it takes until enough slots are free. A slot that would expire later than one
// granted now is cut to that: the clock was set back, or the TTL was shortened.
func (r *concurrency) decide(s *State, now, cost int64) (wait int64, moved bool) {
	moved = r.cut(s, now+r.TTL)
	live := s.Entries[countUpTo(s.Entries, now):]
	s.Entries = prune(s.Entries, now)
	cost = min(cost, 1)
	if cost > r.Limit {
		if !r.Overdraw {
			return Never, moved
		}
		cost = r.Limit
	}
	over := int64(len(live)) + cost - r.Limit
	if over <= 0 {
		return 0, moved
	}
	return live[over-1].At - now, moved
}

// cut lets no slot expire after latest, and reports whether one would have.
func (r *concurrency) cut(s *State, latest int64) bool {
	from := countUpTo(s.Entries, latest)
	if from == len(s.Entries) {
		return false
	}
	s.Entries = slices.Clone(s.Entries)
	for i := from; i < len(s.Entries); i++ {
		s.Entries[i].At = latest
	}
	return true
}

// prune leaves out expired entries, as many as one write removes; with the last one all, since the
// state then counts as absent.
func prune(entries []Entry, now int64) []Entry {
	gone := countUpTo(entries, now)
	if gone == len(entries) {
		return nil
	}
	return entries[min(gone, droppedAtOnce):]
}

func (r *concurrency) charge(s *State, now, cost int64, id string) {
	if cost > 0 {
		s.Entries = append(s.Entries, Entry{At: now + r.TTL, Start: now, ID: id})
	}
}

func (r *concurrency) report(s *State, now int64) (left, reset int64) {
	live := len(s.Entries) - countUpTo(s.Entries, now)
	if live > 0 {
		reset = r.until(s) - now
	}
	return r.Limit - int64(live), reset
}

// mark returns when the slot was granted.
func (r *concurrency) mark(_ *State, now int64) int64 { return now }

func (r *concurrency) until(s *State) int64 {
	if len(s.Entries) == 0 {
		return 0
	}
	return s.Entries[len(s.Entries)-1].At
}

// settle frees the slot if it is still held. It cuts none: the settings of a ticket may be older than
// those of the limit.
func (r *concurrency) settle(s *State, now int64, p *Payment) (changed, ok bool) {
	if p.Charged == 0 || p.Actual > 0 {
		return false, true
	}
	_, held := take(s, now, p.ID)
	s.Entries = prune(s.Entries, now)
	return held, true
}

func (r *concurrency) renew(s *State, now int64, id string) (held bool) {
	slot, held := take(s, now, id)
	s.Entries = prune(s.Entries, now)
	if held {
		slot.At = now + r.TTL
		s.Entries = slices.Insert(s.Entries, countUpTo(s.Entries, slot.At), slot)
	}
	return held
}

// take takes the slot of the decision named id out of the state, if it is still held.
func take(s *State, now int64, id string) (slot Entry, held bool) {
	for i := countUpTo(s.Entries, now); i < len(s.Entries); i++ {
		if s.Entries[i].ID == id {
			slot = s.Entries[i]
			s.Entries = slices.Concat(s.Entries[:i], s.Entries[i+1:])
			return slot, true
		}
	}
	return Entry{}, false
}

func (r *concurrency) list(s *State, now int64) []Listed {
	live := s.Entries[countUpTo(s.Entries, now):]
	oldest := slices.Clone(live[:min(len(live), listedSlots)])
	slices.SortStableFunc(oldest, func(a, b Entry) int { return cmp.Compare(a.Start, b.Start) })
	var all []Listed
	for _, slot := range oldest[:min(len(oldest), maxListed)] {
		all = append(all, Listed{Cost: 1, Age: max(0, now-slot.Start), Due: slot.At - now})
	}
	return all
}

// seed gives the slots that are not left to holders that nobody knows.
func (r *concurrency) seed(now, left, reset int64) State {
	var s State
	if reset > 0 {
		for range r.Limit - left {
			s.Entries = append(s.Entries, Entry{At: now + min(reset, r.TTL), Start: now})
		}
	}
	return s
}
