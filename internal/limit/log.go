package limit

import (
	"slices"
	"sort"
)

// droppedAtOnce is how many entries that no longer count one charge or settlement takes out of a state at
// most, so that none takes long.
const droppedAtOnce = 1000

// entryLog is a log at one moment: what sliding_window_log and leaky_bucket_log share. Each entry's Sum is
// that of the one before and its own Cost, so the costs of all that count are found by looking at two.
type entryLog struct {
	entries []Entry // in the order of At
	first   int     // the first that counts; those before it no longer do, and are still to be taken out
	now     int64
	lasts   int64 // for how long, in µs, an entry counts after its At
}

// newEntryLog returns the log of the entries at now.
func newEntryLog(entries []Entry, now, lasts int64) entryLog {
	return entryLog{entries: entries, first: countUpTo(entries, now-lasts), now: now, lasts: lasts}
}

// countUpTo returns how many of the entries have an At of at most that time.
func countUpTo(entries []Entry, at int64) int {
	return sort.Search(len(entries), func(i int) bool { return entries[i].At > at })
}

// newest returns the last entry, a zero one of an empty log.
func (l entryLog) newest() Entry {
	if len(l.entries) == 0 {
		return Entry{}
	}
	return l.entries[len(l.entries)-1]
}

// live returns the entries that count.
func (l entryLog) live() []Entry { return l.entries[l.first:] }

// used returns what the entries that count cost together.
func (l entryLog) used() int64 {
	if len(l.live()) == 0 {
		return 0
	}
	first := l.live()[0]
	return l.newest().Sum - (first.Sum - first.Cost)
}

// wait returns how long cost must wait until it and all that then counts are at most most: 0 when it
// passes, Never when it cannot. With overdraw a cost above most waits until nothing counts.
func (l entryLog) wait(most, cost int64, overdraw bool) int64 {
	if cost > most {
		if !overdraw {
			return Never
		}
		cost = most
	}
	room := most - cost
	if l.used() <= room {
		return 0
	}
	enough := l.newest().Sum - room // when all up to this sum are gone, room is left
	live := l.live()
	last := sort.Search(len(live), func(i int) bool { return live[i].Sum >= enough })
	return live[last].At + l.lasts - l.now
}

// report returns what is left of most, and how long it takes until nothing counts.
func (l entryLog) report(most int64) (left, reset int64) {
	if len(l.live()) == 0 {
		return most, 0
	}
	return most - l.used(), l.newest().At + l.lasts - l.now
}

// add returns the entries with one more, whose Sum it sets, and without some of those that no longer
// count. The costs of what counts, its own included, are at most MaxNumber.
func (l entryLog) add(e Entry) []Entry {
	if l.newest().Sum > MaxNumber-e.Cost {
		l = l.renumbered()
	}
	e.Sum = l.newest().Sum + e.Cost
	return append(l.kept(), e)
}

// kept returns the entries without some of those that no longer count.
func (l entryLog) kept() []Entry { return l.entries[min(l.first, droppedAtOnce):] }

// renumbered returns the log with only the entries that count, their sums beginning at 0.
func (l entryLog) renumbered() entryLog {
	l.entries = slices.Clone(l.live())
	if len(l.entries) > 0 {
		before := l.entries[0].Sum - l.entries[0].Cost
		for i := range l.entries {
			l.entries[i].Sum -= before
		}
	}
	l.first = 0
	return l
}

// reprice returns the entries with another cost for the one at i, which counts, and without some of those
// that no longer do. The costs of what counts are then at most MaxNumber.
func (l entryLog) reprice(i int, cost int64) []Entry {
	more := cost - l.entries[i].Cost
	behind := len(l.entries) - i
	if l.newest().Sum > MaxNumber-more {
		l = l.renumbered()
	}
	entries := slices.Clone(l.kept())
	repriced := entries[len(entries)-behind:]
	repriced[0].Cost = cost
	for i := range repriced {
		repriced[i].Sum += more
	}
	return entries
}

// settleLog settles p in the log of r's state s, which is at now; moved says that it must be stored in
// any case. It is not ok when the sums would pass MaxNumber.
func settleLog(r rule, s *State, l entryLog, p *Payment, moved bool) (changed, ok bool) {
	if p.Actual == p.Charged {
		return moved, true
	}
	spare := MaxNumber - l.used()
	if p.Charged == 0 {
		if p.Actual > spare {
			return false, false
		}
		r.charge(s, l.now, p.Actual, p.ID)
		return true, true
	}
	i := slices.IndexFunc(l.live(), func(e Entry) bool { return e.ID == p.ID && p.ID != "" })
	if i < 0 {
		return moved, true
	}
	i += l.first
	if p.Actual-l.entries[i].Cost > spare {
		return false, false
	}
	s.Entries = l.reprice(i, p.Actual)
	return true, true
}
