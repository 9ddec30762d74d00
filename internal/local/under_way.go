package local

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Join says that the shared store is about to be asked about the charge. It returns nil when it is
// to be asked; Leave must follow. While questions under way may take all that can be left, and their
// answers are likely to come within most, it returns a channel that closes at the next answer
// instead, and how long to wait for it, and takes no note: after that answer the charge is most
// likely denied here, so that waiting spares a call. That decides nothing: an answer that never comes only makes the others ask
// for themselves. With a most of 0 nobody waits.
func (t *Tier) Join(now time.Time, c *limit.Charge, most time.Duration) (underWay <-chan struct{}, patience time.Duration) {
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(c.Key)
	if !ok {
		return nil, 0
	}
	known := e.gained != nil && e.settings == *c.Settings
	if e.pending > 0 && known && e.worthWaiting(c, most) && e.most(now, &c.Settings.Bucket)-e.pending < c.Cost {
		if e.answered == nil {
			e.answered = make(chan struct{})
		}
		return e.answered, min(most, 4*e.took+time.Millisecond) // later than that, what it was known to take is no longer true
	}
	e.pending += c.Cost
	return nil, 0
}

// Leave says that a question which has joined has its answer, or will get none.
func (t *Tier) Leave(c *limit.Charge) {
	s := t.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.keys.Peek(c.Key); ok {
		e.pending = max(0, e.pending-c.Cost) // a new entry knows nothing of what joined the old one
		e.wake()
	}
}

// worthWaiting reports whether an answer is likely to come within most and to deny c: not when the
// bucket gains c's cost, or much of it, while the answer is under way. The caller holds the shard's
// mu.
func (e *entry) worthWaiting(c *limit.Charge, most time.Duration) bool {
	b := &c.Settings.Bucket
	gain := float64(e.took.Microseconds()) * float64(b.Tokens) / float64(b.Micros) * float64(b.Grain)
	return 2*e.took < most && gain < float64(c.Cost)/2
}

// wake lets everybody ask again who waits for an answer. The caller holds the shard's mu.
func (e *entry) wake() {
	if e.answered != nil {
		close(e.answered)
		e.answered = nil
	}
}

// most returns the most tokens that the bucket can hold at now. The caller holds the shard's mu.
func (e *entry) most(now time.Time, b *limit.TokenBucket) int64 {
	grains := e.gained.TokensAt(e.advance(now)) + e.slack
	return e.state.Tokens + int64(grains)*b.Grain
}
