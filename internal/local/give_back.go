package local

import (
	"context"
	"math"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Asker is the store that the tokens are lent by.
type Asker interface {
	Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision)
}

const (
	// giveBackEvery is how long leases that end are gathered to be reported together: others may use
	// what is unused as much sooner as this is shorter.
	giveBackEvery = 5 * time.Millisecond

	// neverLooks is when Run looks again as long as nothing is lent.
	neverLooks = math.MaxInt64

	// reportsPerCall is how many leases are reported in one call at most.
	reportsPerCall = 64
)

// Run gives back what is unused of each lease when that ends, until ctx does; then what is unused of all.
// What it cannot give back, since the store does not answer, is lost to all for two holds at most, and in a
// window for as long as that lasts.
func (l *Leases) Run(ctx context.Context, store Asker) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.next.Store(neverLooks) // before looking: what is lent from now on is told
		orders, next := l.ended(time.Now())
		l.send(ctx, store, orders)
		if next.IsZero() {
			timer.Stop()
		} else {
			wait := max(giveBackEvery, time.Until(next))
			l.next.Store(time.Now().Add(wait).UnixNano())
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-l.told:
		case <-ctx.Done():
			l.send(context.WithoutCancel(ctx), store, l.close())
			return nil
		}
	}
}

// tell wakes Run when it would look later than at, when something ends or is owed. It never waits itself: the
// caller holds a shard's mu, and Run may have woken by its timer and not yet have seen what it was told before.
func (l *Leases) tell(at time.Time) {
	for next := l.next.Load(); at.UnixNano() < next; next = l.next.Load() {
		if l.next.CompareAndSwap(next, at.UnixNano()) {
			select {
			case l.told <- struct{}{}:
			default:
			}
			return
		}
	}
}

// ended gives up the leases that have ended at now. It returns what is to be said of them, and when the
// next one ends: zero when there is none.
func (l *Leases) ended(now time.Time) (orders []limit.LeaseOrder, next time.Time) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for len(s.ends) > 0 && !now.Before(s.ends[0].at) {
			if h, ok := s.keys.Peek(s.ends[0].key); ok && !now.Before(h.until) {
				s.owe(h)
			}
			s.ends = s.ends[1:]
		}
		if len(s.ends) > 0 && (next.IsZero() || s.ends[0].at.Before(next)) {
			next = s.ends[0].at
		}
		orders = append(orders, s.owed...)
		s.owed = nil
		s.mu.Unlock()
	}
	return orders, next
}

// close gives up every lease, and lets no further one be taken. It returns what is to be said of them.
func (l *Leases) close() []limit.LeaseOrder {
	var orders []limit.LeaseOrder
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.closed = true
		s.keys.Purge()
		orders = append(orders, s.owed...)
		s.owed, s.ends = nil, nil
		s.mu.Unlock()
	}
	return orders
}

// send reports leases, each as a question of its own. Whatever becomes of that, it is not said again.
func (l *Leases) send(ctx context.Context, store Asker, orders []limit.LeaseOrder) {
	for len(orders) > 0 {
		n := min(len(orders), reportsPerCall)
		requests, decisions := make([]limit.Request, n), make([]*limit.Decision, n)
		deadline := time.Now().Add(l.timeout)
		for i := range requests {
			l.count(orders[i].Reports)
			requests[i] = limit.Request{Orders: orders[i : i+1 : i+1], Deadline: deadline}
			decisions[i] = new(limit.Decision)
		}
		store.Decide(ctx, requests, decisions)
		orders = orders[n:]
	}
}
