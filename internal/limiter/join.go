package limiter

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// join lets one question wait while answers under way will most likely decide it, so that a flood
// on a drained key is one call at a time. The wait ends with ctx, or when the question's does.
func (l *Limiter) join(ctx context.Context, q *question, arrival time.Time) {
	for now := arrival; q.sent > 0; now = time.Now() {
		underWay := l.tryJoin(now, q)
		rest := l.timeout - now.Sub(arrival)
		if underWay == nil || rest <= 0 {
			return
		}
		timer := time.NewTimer(rest)
		select {
		case <-underWay:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if l.deniedLocally(time.Now(), q) {
			q.sent, q.charges = 0, nil
			q.decision.Tier = limit.TierLocal
		}
	}
}

// tryJoin joins all charges, or none when it returns a channel to wait for.
func (l *Limiter) tryJoin(now time.Time, q *question) (underWay <-chan struct{}) {
	for i := range q.charges {
		if c := &q.charges[i]; mirrored(c) {
			if underWay = l.tier.Join(now, c); underWay != nil {
				l.leave(q)
				return underWay
			}
		}
		q.joined = i + 1
	}
	return nil
}

// leave undoes what tryJoin did.
func (l *Limiter) leave(q *question) {
	for i := range q.charges[:q.joined] {
		if c := &q.charges[i]; mirrored(c) {
			l.tier.Leave(c)
		}
	}
	q.joined = 0
}

// mirrored reports whether the local tier may deny the charge: not a shadow's, nor a peek.
func mirrored(c *limit.Charge) bool { return !c.Limit.Shadow && c.Cost > 0 }
