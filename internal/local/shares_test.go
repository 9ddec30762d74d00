package local_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// hundredAnHour returns settings of 100 in an hour of every algorithm that counts over a span, by name.
func hundredAnHour(t *testing.T) map[string]limit.Settings {
	const hour = 3_600_000_000
	return map[string]limit.Settings{
		"fixed_window":       must(t)(limit.NewFixedWindow(100, hour)),
		"a day":              must(t)(limit.NewCalendarWindow(100, limit.Day, time.UTC)),
		"sliding_window":     must(t)(limit.NewSlidingWindow(100, hour)),
		"sliding_window_log": must(t)(limit.NewSlidingWindowLog(100, hour)),
		"leaky_bucket_log":   must(t)(limit.NewLeakyBucketLog(limit.Rate{Tokens: 100, Micros: hour}, 100)),
		"concurrency":        must(t)(limit.NewConcurrency(100, hour)),
	}
}

// forHourly runs a test for each of them with 3 nodes, which have 33 each.
func forHourly(t *testing.T, test func(*testing.T, *cutOff)) {
	for name, s := range hundredAnHour(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newCutOffOf(t, s, 3)) })
		})
	}
}

// use asks the shared limit for n of 1, and all nodes hear of it.
func (c *cutOff) use(n int) {
	for range n {
		c.shared(1, c.nodes...)
	}
}

func TestShareOfAWindowBegins(t *testing.T) {
	for _, tt := range []struct{ used, want int }{{-1, 33}, {0, 33}, {50, 16}, {98, 0}, {100, 0}} {
		t.Run(fmt.Sprint(tt.used), func(t *testing.T) {
			forHourly(t, func(t *testing.T, c *cutOff) {
				c.use(tt.used)
				if tt.used == 0 {
					c.shared(0, c.nodes...)
				}
				for node := range c.nodes {
					if v := c.want(node, 1, tt.want); v.Remaining != 0 || v.RetryAfter <= 0 || v.ResetAfter < v.RetryAfter {
						t.Errorf("%+v", v)
					}
				}
			})
		})
	}
}

// TestShareStaysUntilTheReset: until the limit is as if unused, as an answer said, a share has its part
// of what that left, and not more.
func TestShareStaysUntilTheReset(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		c.use(70)
		known, _ := c.nodes[0].tier.Known(time.Now(), c.charge(0))
		time.Sleep(time.Duration(known.Reset)*time.Microsecond - time.Minute)
		c.want(0, 1, 10)
		time.Sleep(time.Minute - time.Microsecond)
		c.want(1, 1, 10)
		time.Sleep(time.Microsecond)
		c.want(2, 1, 33)
		if c.limit.Settings.Algorithm == limit.FixedWindowAlgorithm {
			c.want(0, 1, 33)
			c.want(1, 1, 33)
		}
	})
}

func TestShareOfAWindowAcrossOutages(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		c.want(0, 1, 33)
		time.Sleep(time.Minute)
		// The store is back and away again: what was taken stays taken, whatever it had.
		c.shared(1, c.nodes...)
		c.want(0, 1, 0)
		// Another node used little; what is newly known to be left is less.
		for range 5 {
			c.take(1, 1)
		}
		c.use(60)
		c.want(1, 1, 13)
		// Taken since that answer: it does not count again.
		time.Sleep(time.Second)
		c.want(1, 1, 0)
		// An answer that leaves more than the share holds raises nothing.
		c.use(0)
		for range 10 {
			c.take(2, 1)
		}
		c.shared(0, c.nodes[2])
		c.want(2, 1, 3)
	})
}

// TestWindowShareLastsUntilTheKnownEnd: a share's own window that ends before the shared one must not
// let what is left until then be had twice.
func TestWindowShareLastsUntilTheKnownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, hundredAnHour(t)["fixed_window"], 3)
		c.take(0, 1) // its window ends at 60min
		time.Sleep(55 * time.Minute)
		c.use(1) // the shared one at 115min
		c.want(0, 1, 32)
		time.Sleep(10 * time.Minute)
		c.want(0, 1, 0)
		time.Sleep(50*time.Minute - time.Microsecond)
		c.want(0, 1, 0)
		time.Sleep(time.Microsecond)
		c.want(0, 1, 33)
	})
}

func TestShareOfACalendarPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, must(t)(limit.NewCalendarWindow(100, limit.Day, mustZone("Europe/Paris"))), 3)
		zone := c.limit.Settings.Window.Zone
		for day := range 3 { // whatever was known or taken, each civil day begins at its own midnight
			now := time.Now().In(zone)
			time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)) - time.Second)
			if day == 0 {
				c.want(0, 1, 33)
				c.shared(40, c.nodes[1])
				if v := c.want(1, 1, 20); v.RetryAfter != time.Second {
					t.Errorf("retry after %v, want 1s", v.RetryAfter)
				}
			}
			c.want(0, 1, 0)
			c.want(1, 1, 0)
			time.Sleep(time.Second)
			c.want(0, 1, 33)
			c.want(1, 1, 33)
		}
	})
}

func TestCostAboveTheShareOfAWindow(t *testing.T) {
	forHourly(t, func(t *testing.T, c *cutOff) {
		if c.limit.Settings.Algorithm == limit.ConcurrencyAlgorithm {
			return // one slot whatever the cost
		}
		if v := c.take(0, 100); !v.Allowed || v.Remaining != -67 {
			t.Errorf("a cost of the whole limit on a full share: %+v, want -67 left", v)
		}
		v := c.want(0, 100, 0)
		if v.Never || v.RetryAfter <= 0 {
			t.Errorf("%+v, want a retry", v)
		}
		c.want(0, 1, 0)
		time.Sleep(v.RetryAfter)
		c.want(0, 100, 1)
		c.take(1, 1)
		if v := c.take(1, 34); v.Allowed {
			t.Errorf("a cost above a share that is in use: %+v", v)
		}
	})
}

func TestShareOfFewSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, must(t)(limit.NewConcurrency(2, 60_000_000)), 3)
		v := c.want(0, 1, 1) // none each, and then the debt
		if v.RetryAfter != time.Minute {
			t.Errorf("retry after %v, want 1m", v.RetryAfter)
		}
		time.Sleep(time.Minute)
		c.want(0, 1, 1)
	})
}

// TestAnswerIsHeardOnce: when what was taken earlier no longer counts, the share has it again, although
// the newest answer, which was given before that, left less.
func TestAnswerIsHeardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOffOf(t, hundredAnHour(t)["sliding_window_log"], 3)
		c.take(0, 10)
		time.Sleep(50 * time.Minute)
		c.use(70)
		c.want(0, 11, 0)
		time.Sleep(10 * time.Minute)
		c.want(0, 1, 20)
	})
}

// TestShareOfABucketThatBeganEmpty begins with its part of what the bucket has by now.
func TestShareOfABucketThatBeganEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1_000_000}, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := newCutOff(t, b, 4)
		c.shared(1, c.nodes...) // denied: it begins to fill
		time.Sleep(time.Minute)
		c.want(0, 1, 15)
	})
}
