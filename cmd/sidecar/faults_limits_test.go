package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// TestFaultFlood: reading first and writing after lets a crowd through.
func TestFaultFlood(t *testing.T) {
	everywhere(t, `
limits:
  - {name: five, rate: 5/h, burst: 5, key: [user]}
  - {name: heavy, rate: 7/h, burst: 7, unit: tokens, key: [user]}
policies:
  both: {limits: [five, heavy]}
`, func(s *site) {
		var five, both atomic.Int64
		crowd(50, func() {
			for range 6 {
				if s.take("five", "u1", 1).status == http.StatusOK {
					five.Add(1)
				}
				if s.ask(s.t, `{"policy": "both", "attributes": {"user": "u2"}, "cost": {"tokens": 2}}`).status == http.StatusOK {
					both.Add(1)
				}
			}
		})
		if five.Load() != 5 || both.Load() != 3 {
			s.t.Errorf("%d of 5 and %d of 3 passed", five.Load(), both.Load())
		}
		if s.server == nil {
			return
		}
		// Passes are never answered from memory: all of them are counted in Redis.
		if left := s.peek("five", "u1").left(); left != 0 {
			s.t.Errorf("%d of 5 are left in Redis", left)
		}
		if n := s.metric(s.t, `tidegate_decisions_total{limit="five",result="allowed",tier="local"}`); n > 0 {
			s.t.Errorf("%v passed on local knowledge", n)
		}
	})
}

// TestFaultDeniedIsCharged: what one limit denies is charged by none, whichever comes first, in a
// batch too, and whatever tier says no.
func TestFaultDeniedIsCharged(t *testing.T) {
	everywhere(t, `
limits:
  - {name: narrow, rate: 1/h, burst: 1, key: [user]}
  - {name: wide, rate: 10/h, burst: 10, key: [tenant]}
  - {name: widest, rate: 100/h, burst: 100, key: [tenant]}
policies:
  first: {limits: [narrow, wide, widest]}
  last: {limits: [widest, wide, narrow]}
`, func(s *site) {
		for _, policy := range []string{"first", "last"} {
			question := func(user string) string {
				return fmt.Sprintf(`{"policy": %q, "attributes": {"user": %q, "tenant": %[1]q}}`, policy, policy+user)
			}
			if r := s.ask(s.t, question("a")); r.status != http.StatusOK {
				s.t.Fatalf("got %d %s", r.status, r.text)
			}
			for range 20 {
				if r := s.ask(s.t, question("a")); r.status != http.StatusTooManyRequests {
					s.t.Errorf("got %d %s, want 429", r.status, r.text)
				}
			}
			batch := strings.TrimSuffix(strings.Repeat(question("a")+",", 20)+question("b")+","+question("b"), ",")
			allowed := 0
			for _, d := range s.ask(s.t, `{"checks": [`+batch+`]}`).Decisions {
				if d.Allowed {
					allowed++
				}
			}
			if allowed != 1 {
				s.t.Errorf("%d of a batch passed, want the only question that has something left", allowed)
			}
			if wide, widest := s.peek("wide", policy).left(), s.peek("widest", policy).left(); wide != 8 || widest != 98 {
				s.t.Errorf("%s: after 2 passes and 41 denials %d of 10 and %d of 100 are left", policy, wide, widest)
			}
		}
	})
}

// TestFaultDenyCacheIgnoresTheLimit: a denial is remembered for the settings that gave it, not for
// other settings of the same key, by an override or by a reload.
func TestFaultDenyCacheIgnoresTheLimit(t *testing.T) {
	const limits = `
limits:
  - {name: plan, rate: 1/h, burst: 1, key: [user], overrides: [{when: {plan: big}, rate: 1000/s, burst: 100}]}
  - {name: raised, rate: 1/h, burst: 4, key: [user]}
`
	everywhere(t, limits, func(s *site) {
		ask := func(plan string) *reply {
			return s.ask(s.t, `{"limit": "plan", "attributes": {"user": "u1", "plan": "`+plan+`"}}`)
		}
		ask("small")
		for range 3 {
			if r := ask("small"); r.status != http.StatusTooManyRequests || r.wait() < 59*time.Minute {
				s.t.Errorf("got %d %s, want a denial for an hour", r.status, r.text)
			}
		}
		if r := ask("big"); r.Tier == "local" {
			s.t.Errorf("the big plan was answered from what the small one left: %s", r.text)
		}
		time.Sleep(5 * time.Millisecond) // the big plan gains a token each millisecond
		if r := ask("big"); r.status != http.StatusOK {
			s.t.Errorf("big plan: got %d %s", r.status, r.text)
		}

		s.wantPass(4, 0, "raised", "u1")
		s.reload(1, strings.Replace(limits, "rate: 1/h, burst: 4", "rate: 1000/s, burst: 100", 1))
		if r := s.take("raised", "u1", 1); r.status != http.StatusOK {
			s.t.Errorf("after the limit was raised got %d %s", r.status, r.text)
		}
	})
}

// TestFaultFallbackMultipliesTheLimit: three sidecars that lose Redis share one limit between them,
// say so, and leave no further burst behind when Redis is back.
func TestFaultFallbackMultipliesTheLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const limits = "limits: [{name: thirty, rate: 30/h, burst: 30, key: [user]}]"
	var sites []*site
	for range 3 {
		sites = append(sites, newSite(t, server, proxy.Addr(), "timeout: 1s}\nbreaker: {open_for: 200ms", limits))
	}
	for _, s := range sites {
		s.wantMetric(t, "tidegate_nodes 3")
	}
	take := func(n int, tier string) (passed int) {
		for range n {
			for _, s := range sites {
				r := s.take("thirty", "u1", 1)
				if r.Tier != tier || r.Degraded != (tier == "fallback") || (r.header.Get("X-Tidegate-Degraded") == "true") != r.Degraded {
					t.Errorf("got %s %v, want the tier %s", r.text, r.header, tier)
				}
				if r.status == http.StatusOK {
					passed++
				}
			}
		}
		return passed
	}
	if before := take(5, "redis"); before != 15 {
		t.Errorf("%d of 15 passed", before)
	}
	proxy.Refuse(true)
	if during := take(10, "fallback"); during > 15 || during < 12 {
		t.Errorf("cut off, three sidecars let %d pass, want each a third of the 15 to 17 that it knew of", during)
	}
	proxy.Refuse(false)
	after := 0
	for _, s := range sites {
		await(t, "Redis decides again", func() bool {
			r := s.take("thirty", "u1", 1)
			if r.Tier == "redis" && r.status == http.StatusOK {
				after++
			}
			return r.Tier == "redis"
		})
	}
	for range 20 {
		for _, s := range sites {
			if s.take("thirty", "u1", 1).status == http.StatusOK {
				after++
			}
		}
	}
	if after > 15 {
		t.Errorf("after the outage %d passed, want the 15 that were left in Redis at most", after)
	}
}

// TestFaultReloadRefills: a reload that changes nothing gives nobody anything.
func TestFaultReloadRefills(t *testing.T) {
	const limits = "limits: [{name: five, rate: 5/h, burst: 5, key: [user]}]"
	everywhere(t, limits, func(s *site) {
		s.wantPass(5, 0, "five", "u1")
		for i := range 10 {
			s.signal(s.t, syscall.SIGHUP)
			s.wantMetric(s.t, fmt.Sprintf(`tidegate_config_reloads_total{result="success"} %d`, i+1))
			if r := s.take("five", "u1", 1); r.status != http.StatusTooManyRequests {
				s.t.Fatalf("after reload %d got %d %s", i+1, r.status, r.text)
			}
		}
	})
}

// TestFaultChangedRates: a looser limit denies nothing that the tighter one let pass, and what has
// passed of an interval is worth one new burst at most; a tighter one leaves nothing below zero.
func TestFaultChangedRates(t *testing.T) {
	const limits = `
limits:
  - {name: raised, rate: 10/20s, burst: 15, key: [user]}
  - {name: sped, rate: 1/60s, burst: 1, key: [user]}
  - {name: lowered, rate: 100/h, burst: 100, key: [user]}
`
	everywhere(t, limits, func(s *site) {
		s.take("raised", "u1", 5)
		s.take("lowered", "used", 10)
		s.take("lowered", "drained", 100)
		s.take("sped", "u1", 1)
		drained := time.Now()
		time.Sleep(1100 * time.Millisecond)
		changed := strings.NewReplacer("rate: 10/20s", "rate: 1000/20s", "rate: 1/60s, burst: 1,", "rate: 10/s, burst: 10,",
			"rate: 100/h, burst: 100", "rate: 5/h, burst: 5").Replace(limits)
		s.reload(1, changed)
		for range 3 {
			if r := s.take("raised", "u1", 1); r.status != http.StatusOK {
				s.t.Errorf("after the rate was raised got %d %s", r.status, r.text)
			}
		}
		passed, took := s.count(30, "sped", "u1")
		if most := 10 + int64(10*took.Seconds()); passed > most {
			s.t.Errorf("%d passed in %v, %v after the bucket was drained, want one burst: %d", passed, took, time.Since(drained), most)
		}
		if r := s.peek("lowered", "used"); r.left() != 5 {
			s.t.Errorf("a lowered limit of 5 has %d left", r.left())
		}
		s.wantPass(5, 0, "lowered", "used")
		if r := s.take("lowered", "drained", 1); r.status != http.StatusTooManyRequests || r.left() != 0 || r.wait() > 12*time.Minute {
			s.t.Errorf("a lowered, drained limit: got %d %s", r.status, r.text)
		}
	})
}
