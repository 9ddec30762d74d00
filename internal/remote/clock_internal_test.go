package remote

import (
	"testing"
	"time"
)

// TestClockNeedsNoHostClock: two hosts whose clocks are 5 s apart give a request that may wait
// equally long the same deadline in Redis's time.
func TestClockNeedsNoHostClock(t *testing.T) {
	const redis = 1_780_000_000_000_000
	for _, apart := range []time.Duration{0, 5 * time.Second, -5 * time.Second, 24 * time.Hour} {
		var c clock
		if c.known() || c.at(time.Now()) != 0 {
			t.Error("a clock that was never set knows the time")
		}
		arrived := time.UnixMicro(redis).Add(apart)
		c.set(redis, arrived)
		if got, want := c.at(arrived.Add(50*time.Millisecond)), int64(redis+50_000); got != want {
			t.Errorf("host %v apart: deadline %d, want %d", apart, got, want)
		}
		if got := c.at(time.Time{}); got != 0 {
			t.Errorf("no deadline is %d, want 0", got)
		}
		c.set(redis-1_000_000, arrived.Add(-time.Second))
		if got := c.at(arrived); got != redis {
			t.Errorf("an older reply moved the clock to %d", got)
		}
		c.set(redis-9_000_000, arrived.Add(time.Second))
		if got := c.at(arrived.Add(time.Second)); got != redis-9_000_000 {
			t.Errorf("a newer reply did not move the clock: %d", got)
		}
	}
}
