package limit

import (
	"fmt"
	"time"
)

// LeaseReport is what became of the tokens that a node had on lease from one slot of a key: it says of
// each token once what became of it, and has given up handing that token out before it says so.
type LeaseReport struct {
	Epoch, Slot int64 // of the Lease
	Used        int64 // handed out
	Unused      int64 // given back
}

// LeaseOrder is what a node says of its leases on one key along with a request: what became of those
// that it has given up, and how many tokens it would like to have.
//
// All reports of a call are taken before its first request is decided, and all tokens are lent after its
// last one, so that nothing that waits is denied in favour of a lease. Reports know no deadline: they are
// taken whatever becomes of their request. Tokens are lent until its deadline, since nobody would come for
// them later; also along with one that is left alone because it is outside of its calendar periods. An order on
// a key that is itself outside of its periods, or holds something else, is dropped. A store that asks a request
// again must send it without its Orders and leave the Decision's Leases as they are: a report that is sent twice
// credits tokens twice. For the same reason a node never sends a report again: after a call without an answer
// it counts as delivered.
type LeaseOrder struct {
	Limit    *Limit
	Settings *Settings // with a Hold
	Key      string    // the state's key in every store
	Hash     Hash      // the same within this process
	Reports  []LeaseReport
	Want     int64 // 0: nothing
}

// Lease is what a store has lent a node: Tokens that it may hand out by itself until Usable is over, from
// the moment before the call was sent and by a clock that is at most 1 % slow. The zero Lease is none.
type Lease struct {
	Epoch  int64         // names the key's state; for the report
	Slot   int64         // in which it was lent; for the report
	Tokens int64         // at most what was wanted; 0: nothing was lent
	Usable time.Duration // 98 % of the hold, and of what is left of the window
}

// LeaseState is what the state of a leased limit has besides its algorithm's own. Time is cut in slots
// of a Hold, numbered from 1970 on.
type LeaseState struct {
	Epoch int64    // names the state: when it was made, in µs since 1970, and one more for each step back of the clock
	Slot  int64    // the current one
	Out   [2]int64 // tokens out on lease from the current slot, and from the one before
	At    int64    // fixed_window: when this was true, in µs since 1970
}

// The bounds of a Hold, in µs.
const (
	minHold = 1000
	maxHold = 3_600_000_000
)

// Leased returns settings with the same numbers of which nodes may hold tokens on lease, each for hold µs
// at most. It is an error for an algorithm that cannot be leased, and when hold is not between 1ms and 1h.
func (s Settings) Leased(hold int64) (Settings, error) {
	if s.Algorithm != TokenBucketAlgorithm && s.Algorithm != FixedWindowAlgorithm {
		return s, fmt.Errorf("limit: a %s cannot be leased; a token_bucket and a fixed_window can", s.Algorithm)
	}
	if hold < minHold || hold > maxHold {
		return s, fmt.Errorf("limit: a hold of %s is not between %s and %s", FormatMicros(hold), FormatMicros(minHold), FormatMicros(maxHold))
	}
	s.Hold = hold
	return s, nil
}

// The numbers of the arithmetics that have no algorithm of their own.
const (
	leasedBucketNumber = 8
	leasedWindowNumber = 9
)

// Number returns the number by which the Lua scripts, and tickets, know the arithmetic: the
// Algorithm's, but for leased limits.
func (s *Settings) Number() int64 {
	switch {
	case s.Hold == 0:
		return int64(s.Algorithm)
	case s.Algorithm == FixedWindowAlgorithm:
		return leasedWindowNumber
	default:
		return leasedBucketNumber
	}
}

// leasing is the arithmetic of an algorithm of which tokens may be out on lease.
type leasing interface {
	rule
	takeBack(s *State, now int64, reports []LeaseReport) (changed bool)
	lend(s *State, now, want int64) (lease Lease, changed bool)
	forget(s *State, now int64) (kept bool)
}

// leasing returns the arithmetic of settings with a Hold.
func (s *Settings) leasing() leasing {
	if s.Algorithm == FixedWindowAlgorithm {
		return (*leasedWindow)(s)
	}
	return (*leasedBucket)(s)
}

// TakeBack takes a node's reports. It takes a stored state of a leased limit and brings it to now.
// changed says that it must be stored. A report of another epoch, or of a slot that is forgotten, changes
// nothing: its tokens have come back by refill, and to credit them would be to give them twice.
func (s *Settings) TakeBack(st *State, now int64, reports []LeaseReport) (changed bool) {
	return s.leasing().takeBack(st, now, reports)
}

// Lend lends up to want tokens of what is left. It takes a stored state of a leased limit and brings it
// to now. changed says that it must be stored.
func (s *Settings) Lend(st *State, now, want int64) (lease Lease, changed bool) {
	return s.leasing().lend(st, now, want)
}

// Forget makes the stored state of a limit as if it were never used, but for what is out on lease. It
// reports whether the state must be stored; else it says no more than an absent one.
func (s *Settings) Forget(st *State, now int64) (kept bool) {
	if s.Hold == 0 {
		return false
	}
	return s.leasing().forget(st, now)
}

// out returns the tokens that are out on lease.
func (l *LeaseState) out() int64 { return l.Out[0] + l.Out[1] }

// turn goes on to the next slot. What was lent two slots ago is forgotten: nobody hands it out any more.
func (l *LeaseState) turn() { l.Slot, l.Out = l.Slot+1, [2]int64{0, l.Out[0]} }

// stepBack takes it that the clock was set back to a time in slot. What is out is kept for another hold
// at least, and reports of before are of another epoch.
func (l *LeaseState) stepBack(slot int64) {
	l.Epoch, l.Slot, l.Out = l.Epoch+1, slot, [2]int64{l.out(), 0}
}

// take takes a report, and returns how many tokens it gives back. It is not ok when the report is of a
// slot that is not known, or of more tokens than are out.
func (l *LeaseState) take(r *LeaseReport) (unused int64, ok bool) {
	age := l.Slot - r.Slot
	if r.Epoch != l.Epoch || age < 0 || age > 1 {
		return 0, false
	}
	out := &l.Out[age]
	if r.Used < 0 || r.Unused < 0 || r.Used > *out || r.Unused > *out-r.Used {
		return 0, false
	}
	*out -= r.Used + r.Unused
	return r.Unused, true
}

// lend notes tokens as out, for usable µs less the margin for clocks that run apart.
func (l *LeaseState) lend(tokens, usable int64) Lease {
	l.Out[0] += tokens
	return Lease{Epoch: l.Epoch, Slot: l.Slot, Tokens: tokens, Usable: time.Duration(usable*98/100) * time.Microsecond}
}
