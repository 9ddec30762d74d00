package limiter

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// join lets one question wait while an answer under way will most likely decide it, so that a flood
// on a drained key, and one on a key whose lease is used up, is one call at a time. It waits for at most half of the timeout, which leaves the
// other half for a call of its own, and returns when that call begins. After a wait in vain it does
// not wait again.
func (l *Limiter) join(ctx context.Context, q *question, arrival time.Time) (asked time.Time) {
	most := l.timeout / 2
	now := l.awaitLease(ctx, q, arrival, most)
	for q.sent > 0 {
		most = min(most, l.timeout/2-now.Sub(arrival))
		underWay, patience := l.tryJoin(now, q, most)
		if underWay == nil {
			return now
		}
		answered := waitFor(ctx, underWay, patience)
		now = time.Now()
		if !answered {
			most = 0
		}
		if l.lent(now, q) || l.deniedLocally(now, q) {
			return now
		}
	}
	return now
}

// awaitLease waits for at most most while an order under way may bring what the question needs: once, since
// what it brings may go to others, and all would go on waiting for one after the other. It returns the time
// after that.
func (l *Limiter) awaitLease(ctx context.Context, q *question, now time.Time, most time.Duration) time.Time {
	if !q.lendable || q.sent != 1 {
		return now
	}
	coming := l.leases.Await(&q.charges[0])
	if coming == nil {
		return now
	}
	waitFor(ctx, coming, most)
	now = time.Now()
	if !l.lent(now, q) {
		l.deniedLocally(now, q)
	}
	return now
}

// waitFor returns true when done is closed, and false after patience or when ctx ends.
func waitFor(ctx context.Context, done <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// tryJoin joins all charges, or none when it returns a channel that is worth waiting for.
func (l *Limiter) tryJoin(now time.Time, q *question, most time.Duration) (underWay <-chan struct{}, patience time.Duration) {
	if q.sent == 0 || q.direct {
		return nil, 0
	}
	for i := range q.charges {
		if c := &q.charges[i]; deniable(c) {
			if underWay, patience = l.tier.Join(now, c, most); underWay != nil {
				l.leave(q)
				return underWay, patience
			}
		}
		q.joined = i + 1
	}
	return nil, 0
}

// leave undoes what tryJoin did.
func (l *Limiter) leave(q *question) {
	for i := range q.charges[:q.joined] {
		if c := &q.charges[i]; deniable(c) {
			l.tier.Leave(c)
		}
	}
	q.joined = 0
}

// deniable reports whether the local tier may deny the charge: not a shadow's, nor a peek, nor a slot,
// which may be freed at any time.
func deniable(c *limit.Charge) bool {
	return !c.Limit.Shadow && c.Cost > 0 && c.Settings.Algorithm != limit.ConcurrencyAlgorithm
}
