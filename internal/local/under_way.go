package local

import (
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Join says that the shared store is about to be asked about the charge. It returns nil when it is
// to be asked; Leave must follow. While questions under way may take all that is likely to be left,
// and their answers are likely to come within most, it returns a channel that closes at the next
// answer instead, and how long to wait for it, and takes no note: after that answer the charge is most
// likely denied here, so that waiting spares a call. That decides nothing: an answer that never comes
// only makes the others ask for themselves. With a most of 0 nobody waits.
func (t *Tier) Join(now time.Time, c *limit.Charge, most time.Duration) (underWay <-chan struct{}, patience time.Duration) {
	s := t.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys.Get(c.Hash)
	if !ok {
		return nil, 0
	}
	if e.pending > 0 && e.knows(c.Settings) && e.worthWaiting(c, most) && e.atLeast()-e.pending < c.Cost && e.likely(t.start, t.since(now))-e.pending < c.Cost {
		waiters := e.aside()
		if waiters.answered == nil {
			waiters.answered = make(chan struct{})
		}
		return waiters.answered, min(most, 4*e.took.duration()+time.Millisecond) // later than that, what it was known to take is no longer true
	}
	e.pending += c.Cost
	return nil, 0
}

// Leave says that a question which has joined has its answer, or will get none.
func (t *Tier) Leave(c *limit.Charge) {
	s := t.shard(c.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.keys.Peek(c.Hash); ok {
		e.pending = max(0, e.pending-c.Cost) // a new entry knows nothing of what joined the old one
		e.wake()
	}
}

// worthWaiting reports whether an answer is likely to come within most and to deny c: not when the
// limit gets c's cost back, or much of it, while the answer is under way; nor for a slot, which may be
// freed at any time. The caller holds the shard's mu.
func (e *entry) worthWaiting(c *limit.Charge, most time.Duration) bool {
	took := e.took.duration()
	return 2*took < most && gainIn(e.settings, took) < float64(c.Cost)/2 && e.settings.Algorithm != limit.ConcurrencyAlgorithm
}

// likely returns what is likely to be left at now: of a bucket the most that can be; of a sliding
// window or a log what the newest answer left, and as much as it gets back on average since. The
// caller holds the shard's mu.
func (e *entry) likely(start time.Time, now instant) int64 {
	if mirrored(e.settings) {
		return e.most(start, now)
	}
	most := e.settings.Capacity()
	gained := min(float64(most), gainIn(e.settings, now-e.asOf))
	return min(most, e.leftAt(now)+int64(gained))
}

// gainIn returns how much the limit gets back in d on average; for a fixed window, which gets back all
// at once, 0.
func gainIn(s *limit.Settings, d time.Duration) float64 {
	micros := float64(max(0, d).Microseconds())
	switch s.Algorithm {
	case limit.FixedWindowAlgorithm, limit.ConcurrencyAlgorithm:
		return 0
	case limit.SlidingWindowAlgorithm, limit.SlidingWindowLogAlgorithm:
		return micros * float64(s.Window.Limit) / float64(s.Window.Micros)
	default:
		return micros * float64(s.Bucket.Tokens) / float64(s.Bucket.Micros) * float64(max(1, s.Bucket.Grain))
	}
}

// wake lets everybody ask again who waits for an answer. The caller holds the shard's mu.
func (e *entry) wake() {
	if e.rare != nil && e.rare.answered != nil {
		close(e.rare.answered)
		e.rare.answered = nil
	}
}
