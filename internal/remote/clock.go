package remote

import (
	"sync/atomic"
	"time"
)

// clock tells Redis's time without asking: the newest reply's TIME plus the local time since that
// reply arrived. It is never ahead of Redis, and behind by at most that reply's way back, as long
// as Redis's clock does not step; the next reply mends a step.
type clock struct {
	newest atomic.Pointer[reading]
}

// reading is what Redis's clock said, and the local time at which its reply arrived.
type reading struct {
	redis   int64 // µs since 1970
	arrived time.Time
}

func (c *clock) set(redis int64, arrived time.Time) {
	next := &reading{redis: redis, arrived: arrived}
	for {
		old := c.newest.Load()
		if old != nil && old.arrived.After(arrived) || c.newest.CompareAndSwap(old, next) {
			return
		}
	}
}

// known reports whether Redis's time was ever read.
func (c *clock) known() bool { return c.newest.Load() != nil }

// heardSince reports whether a reply arrived after t.
func (c *clock) heardSince(t time.Time) bool {
	r := c.newest.Load()
	return r != nil && r.arrived.After(t)
}

// at returns Redis's time at the local time t, in µs; 0 when t is zero or nothing was ever read.
func (c *clock) at(t time.Time) int64 {
	r := c.newest.Load()
	if r == nil || t.IsZero() {
		return 0
	}
	return max(1, r.redis+t.Sub(r.arrived).Microseconds())
}

// skew returns how far Redis's clock is ahead of this machine's.
func (c *clock) skew() time.Duration {
	r := c.newest.Load()
	if r == nil {
		return 0
	}
	return time.UnixMicro(r.redis).Sub(r.arrived.Round(0))
}
