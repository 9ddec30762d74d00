package local_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// cutOff is nodes without their shared store, in a bubble: the bucket that they shared, and each
// one's tier and fallback.
type cutOff struct {
	*world
	nodes []cutOffNode
	count int // how many nodes every node knows of

	counted func(*limit.Limit) int // in place of count, when it is not nil
}

type cutOffNode struct {
	tier *local.Tier
	*local.Fallback
}

func newCutOff(t *testing.T, b limit.TokenBucket, nodes int) *cutOff {
	return newCutOffOf(t, bucketOf(b), nodes)
}

func newCutOffOf(t *testing.T, s limit.Settings, nodes int) *cutOff {
	c := &cutOff{world: newWorldOf(t, s), count: nodes}
	c.base = time.Now()
	for range nodes {
		memory, err := local.NewMemory(local.MemoryConfig{MaxKeys: 10, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		tier := newTier(t, local.TierConfig{MaxKeys: 1})
		count := func(l *limit.Limit) int {
			if c.counted != nil {
				return c.counted(l)
			}
			return c.count
		}
		c.nodes = append(c.nodes, cutOffNode{tier: tier, Fallback: local.NewFallback(memory, tier, count)})
	}
	return c
}

// shared asks the shared bucket, and the given nodes hear of it.
func (c *cutOff) shared(cost int64, nodes ...cutOffNode) {
	v := c.answer(time.Since(c.base), cost)
	for _, n := range nodes {
		n.tier.Observe(time.Now(), c.charge(cost), &v)
	}
}

// take asks one node.
func (c *cutOff) take(node int, cost int64) limit.Verdict {
	c.t.Helper()
	return c.ask(node, limit.Request{}, cost).Verdicts[0]
}

// ask asks one node with what r says besides.
func (c *cutOff) ask(node int, r limit.Request, cost int64) limit.Decision {
	c.t.Helper()
	var d limit.Decision
	r.Charges = []limit.Charge{*c.charge(cost)}
	c.nodes[node].Decide([]limit.Request{r}, []*limit.Decision{&d})
	d.Conclude()
	if d.Err != nil || d.Tier != limit.TierFallback || len(d.Verdicts) != 1 || d.Verdicts[0].Settings != &c.limit.Settings || d.Verdicts[0].Limit != c.limit {
		c.t.Fatalf("decision %+v", d)
	}
	return d
}

// want asks one node for cost until it denies, and compares how often it did not.
func (c *cutOff) want(node int, cost int64, times int) (denial limit.Verdict) {
	c.t.Helper()
	for n := 0; ; n++ {
		if v := c.take(node, cost); !v.Allowed {
			if n != times {
				c.t.Errorf("node %d admits %d times %d, want %d times", node, n, cost, times)
			}
			return v
		}
		if n > times+100 {
			c.t.Fatalf("node %d admits %d more than %d times", node, cost, times)
		}
	}
}

func TestShareBegins(t *testing.T) {
	hourly := func(burst int64) limit.TokenBucket { return even(t, 1, 3_600_000_000, burst) }
	tests := []struct {
		name   string
		bucket limit.TokenBucket
		nodes  int
		used   int64 // of the shared bucket, as every node knows; -1: nothing is known
		want   int
	}{
		{"whole", hourly(10), 1, -1, 10},
		{"nobody was counted", hourly(10), 0, -1, 10},
		{"rounded down", hourly(100), 3, -1, 33},
		{"known full", hourly(100), 3, 0, 33},
		{"half used", hourly(100), 3, 50, 16},
		{"less left than nodes", hourly(100), 3, 98, 0},
		{"used up", hourly(100), 3, 100, 0},
		{"less than a token each", hourly(2), 3, -1, 1}, // and then the debt
		{"a token each", hourly(3), 3, -1, 1},
		{"discrete", discrete(t, 10, time.Hour, 20), 3, -1, 6},
		{"rate 0", even(t, 0, 1, 0), 3, -1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCutOff(t, tt.bucket, max(1, tt.nodes))
				c.count = tt.nodes
				if tt.used >= 0 {
					c.shared(tt.used, c.nodes...)
				}
				for node := range c.nodes {
					c.want(node, 1, tt.want)
				}
			})
		})
	}
}

func TestShareOfLessThanATokenPaysItsDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 10, 1_000_000, 1), 5) // 2/s each
		for range 20 {
			if v := c.want(0, 1, 1); v.RetryAfter != 500*time.Millisecond {
				t.Fatalf("retry after %v, want 500ms", v.RetryAfter)
			}
			time.Sleep(499_999 * time.Microsecond)
			c.want(0, 1, 0)
			time.Sleep(time.Microsecond)
		}
	})
}

func TestCostAboveTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 100, 1_000_000, 100), 4) // 25/s over 25 each
		if v := c.take(0, 100); !v.Allowed || v.Remaining != -75 {
			t.Errorf("a cost of the whole burst on a full share: %+v, want -75 left", v)
		}
		if v := c.want(0, 1, 0); v.RetryAfter != 3040*time.Millisecond {
			t.Errorf("retry after %v, want 3.04s", v.RetryAfter)
		}
		v := c.want(0, 100, 0)
		if v.RetryAfter != 4*time.Second || v.Never {
			t.Errorf("%+v, want a retry after 4s", v)
		}
		time.Sleep(v.RetryAfter)
		c.want(0, 100, 1)
	})
}

func TestCostAboveAShareThatBeginsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 10_000}, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := newCutOff(t, b, 4)
		v := c.want(0, 100, 0)
		if v.RetryAfter != time.Second {
			t.Errorf("retry after %v, want 1s", v.RetryAfter)
		}
		time.Sleep(v.RetryAfter)
		c.want(0, 100, 1)
	})
}

func TestShareOfADebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 30, 1_000_000, 30), 3) // 10/s each
		// A settlement left the bucket 11 below zero: 4 for each.
		c.state.Bucket = c.limit.Settings.Bucket.Charge(limit.BucketState{Tokens: 30, At: c.micros(0), Micros: c.limit.Settings.Bucket.Micros}, 41)
		c.shared(0, c.nodes...)
		v := c.want(0, 1, 0)
		if v.Remaining != -4 || v.RetryAfter != 500*time.Millisecond {
			t.Errorf("%+v, want -4 left and a retry after 500ms", v)
		}
		time.Sleep(v.RetryAfter)
		c.want(0, 1, 1)
	})
}

func TestShareAcrossOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 1, 3_600_000_000, 100), 4)
		c.want(0, 1, 25)
		time.Sleep(time.Minute)
		// The store is back and away again: what was taken stays taken, whatever it had.
		c.shared(0, c.nodes...)
		c.want(0, 1, 0)
		// Another node used little; what is newly known to be left is less.
		for range 5 {
			c.take(1, 1)
		}
		c.shared(60, c.nodes[1])
		c.want(1, 1, 10)
		// Taken since that answer: it does not count again.
		time.Sleep(time.Minute)
		c.want(1, 1, 0)
		// An answer that leaves more than the share holds raises nothing.
		c.take(2, 20)
		time.Sleep(time.Minute)
		c.shared(1, c.nodes[2])
		c.want(2, 1, 5)
	})
}

func TestKnowledgeBeforeTheShareLowersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 1, 1_000_000, 100), 4)
		c.shared(60, c.nodes[0])
		c.want(0, 1, 10)
		time.Sleep(time.Minute) // 15 more for each
		c.want(0, 1, 15)
	})
}

func TestShareIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCutOff(t, even(t, 1, 3_600_000_000, 100), 4)
		other := &limit.Limit{Name: "m", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: even(t, 1, 3_600_000_000, 8)}}
		both := []limit.Charge{*c.charge(10), {Limit: other, Settings: &other.Settings, Key: "rl:{m:u}", Hash: hashOf("rl:{m:u}"), Cost: 1}}
		var got []bool
		for range 4 {
			var d limit.Decision
			c.nodes[0].Decide([]limit.Request{{Charges: both}}, []*limit.Decision{&d})
			d.Conclude()
			got = append(got, d.Allowed)
		}
		if got[0] != true || got[1] != true || got[2] != false || got[3] != false {
			t.Errorf("admitted %v, want the first two", got)
		}
		c.want(0, 1, 5) // what the first limit denied cost the second nothing, and the other way round
	})
}

func TestShareUnderContention(t *testing.T) {
	c := newCutOff(t, even(t, 1, 10, 1000), 1) // 100,000/s
	var admitted atomic.Int64
	start := time.Now()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			decision := new(limit.Decision)
			requests, decisions := []limit.Request{{Charges: []limit.Charge{*c.charge(1)}}}, []*limit.Decision{decision}
			for time.Since(start) < 300*time.Millisecond {
				if c.nodes[0].Decide(requests, decisions); decision.Verdicts[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if most := 1001 + time.Since(start).Microseconds()/10; admitted.Load() > most {
		t.Errorf("admitted %d, want at most %d", admitted.Load(), most)
	}
}
