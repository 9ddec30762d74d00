package remote

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// queue gathers the questions of all callers while a call is under way: they leave together in the
// next one. A question that finds no call under way leaves at once. Only when what waits fills a call, or the
// newest call has been out for longer than is usual, do the waiting ones leave in a further call beside it. Safe
// for concurrent use.
type queue struct {
	turns chan struct{} // one is taken by each call under way
	timer *time.Timer   // runs out when a wait ends, and when a call turns slow while others wait

	crowded atomic.Bool // the last call carried several questions

	mu      sync.Mutex
	waiting []*item   // in the order of arrival; guarded by mu
	charges int       // of those that wait; guarded by mu
	flights []*flight // under way, in the order of departure; guarded by mu
	pace    pace      // guarded by mu
	armed   time.Time // when timer runs out; zero: it does not; guarded by mu
	closed  bool      // tick lets no further call leave, since Close waits for those that there are; guarded by mu
}

// item is one question on its way: in the queue, aboard a flight, or answered.
type item struct {
	request  *limit.Request
	decision *limit.Decision
	deadline time.Time
	owner    *ask
	again    bool // the script has left it alone, and is asked again
	left     bool // its caller has been answered without it; guarded by the queue's mu until its flight is over
}

// charges returns how much of a call's room the question takes.
func (i *item) charges() int { return len(i.request.Charges) + len(i.request.Orders) }

// ask is the questions of one call of Decide.
type ask struct {
	items []item
	open  atomic.Int32  // how many are not answered
	done  chan struct{} // gets a value when none is open, and has room for it
	stray bool          // a flight still knows an item that has left; guarded by the queue's mu
}

// init makes the queue ready: so many calls are under way at once at most, and no wait is longer than
// timeout. tick is called by a goroutine of its own when tick of the queue is to be.
func (q *queue) init(turns int, timeout time.Duration, tick func()) {
	q.turns = make(chan struct{}, turns)
	q.pace.most = timeout / 8
	q.timer = time.AfterFunc(time.Hour, tick)
	q.timer.Stop()
}

func newAsk() any { return &ask{done: make(chan struct{}, 1)} }

// fill takes the questions over. One without a deadline waits until otherwise.
func (a *ask) fill(requests []limit.Request, decisions []*limit.Decision, otherwise time.Time) {
	a.items = slices.Grow(a.items[:0], len(requests))[:len(requests)]
	for i := range requests {
		deadline := requests[i].Deadline
		if deadline.IsZero() {
			deadline = otherwise
		}
		a.items[i] = item{request: &requests[i], decision: decisions[i], deadline: deadline, owner: a}
	}
	a.open.Store(int32(len(requests)))
}

// last returns when the last of its waits ends.
func (a *ask) last() time.Time {
	last := a.items[0].deadline
	for i := range a.items {
		if d := a.items[i].deadline; d.After(last) {
			last = d
		}
	}
	return last
}

// answered says that the item's decision is filled.
func (i *item) answered() {
	if i.owner.open.Add(-1) == 0 {
		i.owner.done <- struct{}{}
	}
}

// fail answers the item with an error.
func (i *item) fail(err error) {
	i.decision.Reset()
	i.decision.Err = err
	i.answered()
}

// join adds the questions behind those that wait. It returns an empty flight when one is to leave now.
func (q *queue) join(a *ask, now time.Time) *flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := a.items[0].deadline
	for i := range a.items {
		q.waiting = append(q.waiting, &a.items[i])
		q.charges += a.items[i].charges()
		if d := a.items[i].deadline; d.Before(first) {
			first = d
		}
	}
	f := q.reserve(now)
	q.arm(first)
	return f
}

// rejoin puts items that a call has left alone in front of the others. It returns an empty flight when
// one is to leave now.
func (q *queue) rejoin(items []*item, now time.Time) *flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, 0, items...)
	for _, i := range items {
		q.charges += i.charges()
	}
	f := q.reserve(now)
	for _, i := range items {
		q.arm(i.deadline)
	}
	return f
}

// reserve returns an empty flight if one is to leave at now. The caller holds mu.
func (q *queue) reserve(now time.Time) *flight {
	if len(q.waiting) == 0 || len(q.flights) > 0 && !q.full() && now.Before(q.slow()) {
		return nil
	}
	select {
	case q.turns <- struct{}{}:
	default:
		return nil
	}
	f := &flight{departed: now}
	q.flights = append(q.flights, f)
	return f
}

// full reports whether what waits fills a call that is to leave beside the only one under way: waiting would make
// it no larger, and Redis would idle while that one's answers are handed out. The caller holds mu.
func (q *queue) full() bool {
	return len(q.flights) == 1 && len(q.flights[0].items) > 0 && q.charges >= q.pace.size()
}

// slow returns when the newest of the calls under way will have been out for longer than is usual; twice
// as long for each further one, lest calls pile up at a Redis that cannot keep up. The caller holds mu.
func (q *queue) slow() time.Time {
	newest := len(q.flights) - 1
	return q.flights[newest].departed.Add(q.pace.patience() << newest)
}

// arm sees to it that the timer runs out at wait, and before that when a call beside those under way
// is to leave. The caller holds mu.
func (q *queue) arm(wait time.Time) {
	if len(q.waiting) > 0 && len(q.flights) > 0 && len(q.turns) < cap(q.turns) {
		if slow := q.slow(); slow.Before(wait) {
			wait = slow
		}
	}
	if q.armed.IsZero() || wait.Before(q.armed) {
		q.armed = wait
		q.timer.Reset(time.Until(wait))
	}
}

// board fills a flight that was reserved with as much of what waits as one call is to carry. report is how
// the gate is told what becomes of it. It reports whether anything still waited.
func (q *queue) board(f *flight, report func(error)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.departed, f.report = time.Now(), report
	room, n := q.pace.size(), 0
	for _, i := range q.waiting {
		charges := i.charges()
		if n > 0 && charges > room {
			break
		}
		room -= charges
		q.charges -= charges
		f.board(i)
		n++
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.crowded.Store(n > 1)
	return n > 0
}

// refuse answers everything that waits with err.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.waiting {
		i.fail(err)
	}
	clear(q.waiting)
	q.waiting, q.charges = q.waiting[:0], 0
}

// end ends the waits for a flight: from now on nobody leaves it any more. It reports whether anybody
// still waited.
func (q *queue) end(f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	awaited := !f.over
	f.over = true
	return awaited
}

// land takes the flight, which has ended, from those under way; answered says that there was a reply. When
// others wait it returns the flight that leaves in its place, empty.
func (q *queue) land(f *flight, now time.Time, answered bool) *flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	if answered {
		q.pace.was(now.Sub(f.departed))
	}
	at := slices.Index(q.flights, f)
	q.flights = slices.Delete(q.flights, at, at+1)
	<-q.turns
	return q.reserve(now)
}

// busy takes over for how long a call of so many charges kept Redis busy.
func (q *queue) busy(took time.Duration, charges int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.cost(took, charges)
}

// tick ends the waits that are over at now, of the items that have gone: they are to be answered. It returns
// the flights that nobody waits for any more, and an empty one when it is to leave now.
func (q *queue) tick(now time.Time) (gone []*item, abandoned []*flight, next *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = time.Time{}
	var first time.Time // end of a wait
	gone, abandoned = q.dismiss(func(i *item) bool {
		if !i.deadline.After(now) {
			return true
		}
		if first.IsZero() || i.deadline.Before(first) {
			first = i.deadline
		}
		return false
	})
	if !q.closed {
		next = q.reserve(now)
	}
	if !first.IsZero() {
		q.arm(first)
	}
	return gone, abandoned, next
}

// leave ends the waits of a, but for items of a flight that is over, whose answers are being handed out. It returns
// the items that have gone, which are to be answered, and the flights that nobody waits for any more.
func (q *queue) leave(a *ask) (gone []*item, abandoned []*flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dismiss(func(i *item) bool { return i.owner == a })
}

// dismiss ends the waits of those items. The caller holds mu.
func (q *queue) dismiss(those func(*item) bool) (gone []*item, abandoned []*flight) {
	q.waiting = slices.DeleteFunc(q.waiting, func(i *item) bool {
		if !those(i) {
			return false
		}
		q.charges -= i.charges()
		gone = append(gone, i)
		return true
	})
	for _, f := range q.flights {
		if f.over || len(f.items) == 0 {
			continue
		}
		for _, i := range f.items {
			if !i.left && those(i) {
				i.left, i.owner.stray = true, true
				f.open--
				gone = append(gone, i)
			}
		}
		if f.open == 0 {
			f.over = true
			abandoned = append(abandoned, f)
		}
	}
	return gone, abandoned
}

// close keeps tick from letting further calls leave: from now on Close waits for those that there are.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
