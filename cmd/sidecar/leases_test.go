package main_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// The leased limits that are to be held under faults.
const (
	wildBurst  = 300
	wildRate   = 1000
	wildWindow = 60
	wildHour   = 800
	wildSpan   = 300 * time.Millisecond // of the window
	wild       = `
leases: {hold: 100ms}
breaker: {failures: 1000, open_for: 100ms}
on_redis_failure: closed
limits:
  - {name: bucket, rate: 1000/s, burst: 300, key: [user], mode: leased}
  - {name: window, algorithm: fixed_window, limit: 60, window: 300ms, key: [user], mode: leased}
  - {name: hour, algorithm: fixed_window, limit: 800, window: 1h, key: [user], mode: leased, state: string}
`
)

// TestLeasesNeverExceed: six sidecars with leases on a bucket and on windows, asked in storms and lulls, some of
// them killed while they hold tokens, and with calls whose replies are late or lost. In every window whatever,
// what was admitted is within the strict bound.
func TestLeasesNeverExceed(t *testing.T) {
	seed, rounds := rand.Uint64(), 9
	if !testing.Short() {
		rounds = 60
	}
	t.Logf("seed %d", seed)
	h := newHerd(t, redistest.Start(t), 6, 3, 24, seed, "timeout: 250ms", wild)
	done := make(chan struct{})
	defer func() { <-done }() // also when a sidecar does not start
	go func() {
		defer close(done)
		for range rounds {
			h.storm(200 * time.Millisecond)
			h.lull()
		}
		h.storm(200 * time.Millisecond)
	}()
	kills := h.trouble(rand.New(rand.NewPCG(seed, 1000)), done)

	bucket, cost, leased := h.granted("bucket")
	t.Logf("%d killed; bucket: %d granted, %d from leases, %d denied", kills, cost, leased, h.deniedOf("bucket"))
	if leased < cost/20 || h.deniedOf("bucket") == 0 {
		t.Errorf("of %d granted only %d were from leases, and %d were denied: nothing was tested", cost, leased, h.deniedOf("bucket"))
	}
	// The clocks of Redis and of this process run apart by less than 0.1 %, and Redis cuts its times to µs.
	most, from, to := mostIn(bucket, wildRate*1.001)
	t.Logf("bucket: at most %.2f more than its rate", most)
	if most > wildBurst+wildRate*1e-6 {
		t.Errorf("a bucket with a burst of %d admitted %.2f more than its rate from %v to %v", wildBurst, most, from, to)
	}

	window, cost, leased := h.granted("window")
	fullest := int64(0)
	for _, e := range endsOf(window, wildSpan) {
		fullest = max(fullest, costWithin(window, e.latest-wildSpan, e.earliest))
	}
	t.Logf("window: %d granted, %d from leases, %d denied; %d in one at most", cost, leased, h.deniedOf("window"), fullest)
	if fullest > wildWindow || leased == 0 || h.deniedOf("window") == 0 {
		t.Errorf("a window of %d admitted %d at most, %d from leases in all", wildWindow, fullest, leased)
	}

	_, cost, leased = h.granted("hour")
	t.Logf("hour: %d granted, %d from leases, %d denied", cost, leased, h.deniedOf("hour"))
	if cost > wildHour || leased == 0 {
		t.Errorf("a window of %d admitted %d, %d from leases", wildHour, cost, leased)
	}
}

// storm has every caller ask in bursts and pauses: at first all together for the bucket, which a lull may have
// filled.
func (h *herd) storm(d time.Duration) {
	end := time.Now().Add(d)
	h.all(func(i int, c *caller) {
		c.burst(h.members[i%len(h.members)], "bucket", 20, 1, end)
		for time.Now().Before(end) {
			limit := [...]string{"bucket", "bucket", "window", "hour"}[c.rng.IntN(4)]
			c.burst(h.members[c.rng.IntN(len(h.members))], limit, 1+c.rng.IntN(15), 6, end)
			time.Sleep(time.Duration(c.rng.IntN(8)) * time.Millisecond)
		}
	})
}

// burst asks up to n times until end, for costs up to most, or until there is no answer.
func (c *caller) burst(m *member, limit string, n int, most int64, end time.Time) {
	for range n {
		cost := int64(1)
		if c.rng.IntN(4) == 0 {
			cost += c.rng.Int64N(most)
		}
		if !c.ask(m, limit, cost) || time.Now().After(end) {
			return
		}
	}
}

// lull leaves the bucket alone until it is full, and then has one sidecar take as much on lease as it may: half the
// time the first one, whose line is so slow that it may hardly use that. The next storm breaks about when a lease
// ends, or when the bucket forgets it.
func (h *herd) lull() {
	time.Sleep(wildBurst * time.Second / wildRate)
	c := h.callers[0]
	m, calm := h.members[1+c.rng.IntN(len(h.members)-1)], 30+c.rng.IntN(170)
	slow := c.rng.IntN(2) == 0
	if slow {
		m, calm = h.members[0], 45+c.rng.IntN(50)
	}
	c.ask(m, "bucket", 30)
	c.ask(m, "bucket", wildBurst) // is denied, and makes much wanted
	if slow {
		m.proxy.SetDelay(time.Duration(80+c.rng.IntN(25)) * time.Millisecond)
	}
	c.ask(m, "bucket", 1)
	if slow {
		m.proxy.SetDelay(0)
	}
	time.Sleep(time.Duration(calm) * time.Millisecond)
}

// trouble makes faults until done, and returns how many sidecars it killed.
func (h *herd) trouble(rng *rand.Rand, done <-chan struct{}) (kills int) {
	calm := func(least int) bool { // for at least so many ms
		select {
		case <-done:
			return false
		case <-time.After(time.Duration(least+rng.IntN(100)) * time.Millisecond):
			return true
		}
	}
	for calm(50) {
		i := rng.IntN(len(h.members))
		m := h.members[i]
		switch what := rng.IntN(8); {
		case what == 0:
			m.kill(h.t)
			kills++
			calm(0)
			m.start(h.t)
		case m.proxy == nil:
		case what < 3:
			m.proxy.DropReplies(true)
			calm(20)
			m.proxy.DropReplies(false)
		case what == 3:
			m.proxy.CutReplyAfter(rng.IntN(40))
		case i > 0: // the first one's line is slow in the lulls
			m.proxy.SetDelay(time.Duration(10+rng.IntN(80)) * time.Millisecond)
			calm(200)
			m.proxy.SetDelay(0)
		}
	}
	return kills
}

// calm is a leased bucket beside a strict one of the same numbers, and a leased window that does not end.
const (
	calmRate = 240
	calmLast = 400
	calm     = `
leases: {hold: 250ms}
limits:
  - {name: leased, rate: 240/s, burst: 240, key: [user], mode: leased}
  - {name: strict, rate: 240/s, burst: 240, key: [user]}
  - {name: last, algorithm: fixed_window, limit: 400, window: 1h, key: [user], mode: leased}
`
)

// TestLeasesUnderOverload: what six sidecars admit of a leased bucket is what they admit of a strict one that is
// asked the same at the same time: all that is asked for below its rate, and under overload nearly all that it
// has, since hardly anything is held in vain. Of a window it is exactly its limit, since all that is unused comes
// back.
func TestLeasesUnderOverload(t *testing.T) {
	below, above := 2*time.Second, 4*time.Second
	if !testing.Short() {
		below, above = 10*time.Second, 20*time.Second
	}
	h := newHerd(t, redistest.Start(t), 6, 0, 12, 1, "timeout: 10s", calm)
	h.pace(below, 0.9*calmRate, "leased", "strict", "last")
	_, leased, lent := h.granted("leased")
	_, strict, _ := h.granted("strict")
	t.Logf("0.9 × the rate: %d and %d admitted, %d from leases; %d and %d denied", leased, strict, lent, h.deniedOf("leased"), h.deniedOf("strict"))
	if denied := h.deniedOf("leased"); denied > h.deniedOf("strict")+leased/200 || lent < leased/20 {
		t.Errorf("below the rate %d of %d were denied, and %d were from leases", denied, leased+denied, lent)
	}

	h.pace(above, 3*calmRate, "leased", "strict")
	_, leasedNow, _ := h.granted("leased")
	_, strictNow, _ := h.granted("strict")
	leased, strict = leasedNow-leased, strictNow-strict
	t.Logf("3 × the rate: %d and %d admitted; %d and %d denied", leased, strict, h.deniedOf("leased"), h.deniedOf("strict"))
	if float64(leased) < 0.96*float64(strict) {
		t.Errorf("under overload %d were admitted by leases, %d without", leased, strict)
	}

	c, n := h.callers[0], 0
	await(t, "all of the window is admitted", func() bool {
		n++
		c.ask(h.members[n%len(h.members)], "last", 1)
		_, got, _ := h.granted("last")
		return got >= calmLast
	})
	h.all(func(i int, c *caller) {
		for range 10 {
			c.ask(h.members[i%len(h.members)], "last", 1)
		}
	})
	if _, got, lent := h.granted("last"); got != calmLast || lent == 0 {
		t.Errorf("a window of %d admitted %d, %d from leases", calmLast, got, lent)
	}
}

// pace has the callers ask about each limit in turn, always the same sidecar, for perSecond tokens in all. What is
// late is not made up for.
func (h *herd) pace(d time.Duration, perSecond float64, limits ...string) {
	end := time.Now().Add(d)
	mean := 2 * float64(len(h.callers)) / perSecond * float64(time.Second)
	h.all(func(i int, c *caller) {
		for next := time.Now(); next.Before(end); {
			time.Sleep(time.Until(next))
			cost := 1 + c.rng.Int64N(3)
			for _, limit := range limits {
				c.ask(h.members[i%len(h.members)], limit, cost)
			}
			next = next.Add(time.Duration((0.5 + c.rng.Float64()) * mean))
			if now := time.Now(); next.Before(now) {
				next = now
			}
		}
	})
}

// TestMostIn compares with the trial of every window.
func TestMostIn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var grants []grant
		for range 1 + rng.IntN(30) {
			sent := time.Duration(rng.IntN(100)) * time.Millisecond
			grants = append(grants, grant{sent: sent, got: sent + time.Duration(rng.IntN(10))*time.Millisecond, cost: 1 + rng.Int64N(3)})
		}
		rate, want := float64(rng.IntN(1000)), math.Inf(-1)
		for _, first := range grants {
			for _, last := range grants {
				inside := 0.0
				for _, g := range grants {
					if g.sent >= first.sent && g.got <= last.got {
						inside += float64(g.cost)
					}
				}
				if inside > 0 {
					want = max(want, inside-rate*(last.got-first.sent).Seconds())
				}
			}
		}
		got, from, to := mostIn(grants, rate)
		if math.Abs(got-want) > 1e-6 || from > to {
			t.Fatalf("got %v from %v to %v, want %v", got, from, to, want)
		}
	}
}
