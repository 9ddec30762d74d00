package main_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestFaultSlowRates: a rate below one a second must not become zero, a burst that is left out not
// none, and part of a token counts in the wait.
func TestFaultSlowRates(t *testing.T) {
	everywhere(t, `
limits:
  - {name: slow, rate: 6/m, burst: 2, key: [user]}
  - {name: half, rate: 60/m, burst: 1, key: [user]}
  - {name: derived, rate: 2/s, key: [user]}
  - {name: least, rate: 0.2/s, key: [user]}
`, func(s *site) {
		s.wantPass(2, 0.1, "slow", "u1")
		if r := s.take("slow", "u1", 1); r.wait() <= 9*time.Second || r.wait() > 10*time.Second || r.header.Get("Retry-After") != "10" {
			s.t.Errorf("got Retry-After %s, %v, want 10 s", r.header.Get("Retry-After"), r.wait())
		}
		s.wantPass(2, 2, "derived", "u1")
		s.wantPass(1, 0.2, "least", "u1")

		first := s.take("half", "u1", 1)
		time.Sleep(200 * time.Millisecond)
		denied := s.take("half", "u1", 1)
		least, most := time.Second-denied.got.Sub(first.sent), time.Second-denied.sent.Sub(first.got)+time.Millisecond
		if first.status != http.StatusOK || denied.wait() < least || denied.wait() > most+20*time.Millisecond {
			s.t.Errorf("got a wait of %v, want %v to %v", denied.wait(), least, most)
		}
		s.wantTight("half", "u1")
	})
}

// wantTight waits exactly as long as a denial says: 30 ms less does not pass, that does.
func (s *site) wantTight(limit, key string) {
	s.t.Helper()
	denied := s.take(limit, key, 1)
	if denied.status != http.StatusTooManyRequests {
		s.t.Fatalf("%s %s is not drained: %s", limit, key, denied.text)
	}
	due := denied.got.Add(denied.wait())
	time.Sleep(time.Until(due.Add(-40 * time.Millisecond)))
	early := s.take(limit, key, 1)
	if early.status == http.StatusOK && early.got.Before(denied.sent.Add(denied.wait()-time.Millisecond)) {
		s.t.Errorf("%s %s passed %v before its time", limit, key, time.Until(due))
	}
	if early.status == http.StatusOK {
		return // the machine slept for longer than it was told
	}
	time.Sleep(time.Until(due))
	if r := s.take(limit, key, 1); r.status != http.StatusOK {
		s.t.Errorf("%s %s: after a wait of %v got %s", limit, key, denied.wait(), r.text)
	}
}

// TestFaultFastRates: more than 1000 a second are no error, and neither lost nor multiplied.
func TestFaultFastRates(t *testing.T) {
	rates := []int64{2000, 8000, 1_000_000}
	var limits strings.Builder
	limits.WriteString("limits:\n")
	for _, rate := range rates {
		fmt.Fprintf(&limits, "  - {name: one-%d, rate: %[1]d/s, burst: 1, key: [user]}\n", rate)
		fmt.Fprintf(&limits, "  - {name: deep-%d, rate: %[1]d/s, burst: %d, key: [user]}\n", rate, 100*rate)
	}
	everywhere(t, limits.String(), func(s *site) {
		for _, rate := range rates {
			one := fmt.Sprintf("one-%d", rate)
			for range 20 {
				if r := s.take(one, "u1", 1); r.status != http.StatusOK && r.wait() != time.Millisecond {
					s.t.Errorf("%s: got a wait of %v, want 1 ms", one, r.wait())
				}
			}
			deep := fmt.Sprintf("deep-%d", rate)
			drained := s.take(deep, "u1", 100*rate)
			time.Sleep(100 * time.Millisecond)
			r := s.peek(deep, "u1")
			least := int64(r.sent.Sub(drained.got).Seconds() * float64(rate))
			most := int64(r.got.Sub(drained.sent).Seconds()*float64(rate)) + 1
			if drained.status != http.StatusOK || r.left() < least || r.left() > most {
				s.t.Errorf("%s: %d came back, want %d to %d", deep, r.left(), least, most)
			}
		}
	})
}

// TestFaultStateIsKept: a large limit, a burst below the rate, and intervals around a second all
// leave a state behind that counts, for as long as it matters and no longer.
func TestFaultStateIsKept(t *testing.T) {
	everywhere(t, `
limits:
  - {name: large, rate: 1000/m, burst: 1000, key: [user]}
  - {name: huge, rate: 6000/s, burst: 6000, key: [user]}
  - {name: narrow, rate: 3/s, burst: 1, key: [user]}
  - {name: tenth, rate: 10/s, burst: 1, key: [user]}
  - {name: second, rate: 1/s, burst: 1, key: [user]}
`, func(s *site) {
		for i := range int64(3) {
			if r := s.take("large", "three", 1); r.left() < 999-i || r.left() > 999 {
				s.t.Errorf("after %d: got %s, want %d left", i+1, r.text, 999-i)
			}
		}
		hundred := strings.TrimSuffix(strings.Repeat(`{"limit": "large", "key": "all"},`, 100), ",")
		passed, start := int64(0), time.Now()
		for range 11 {
			for _, d := range s.ask(s.t, `{"checks": [`+hundred+`]}`).Decisions {
				if d.Allowed {
					passed++
				}
			}
		}
		if most := 1001 + int64(time.Since(start).Seconds()*1000/60); passed < 1000 || passed > most {
			s.t.Errorf("%d of 1,100 passed a limit of 1,000, want at most %d", passed, most)
		}
		if r := s.take("huge", "u1", 6000); r.status != http.StatusOK || r.left() != 0 {
			s.t.Errorf("got %s, want 0 left", r.text)
		}
		s.wantPass(1, 3, "narrow", "u1")
		s.wantPass(1, 10, "tenth", "u1")
		s.wantPass(1, 1, "second", "u1")
		if s.server == nil {
			return
		}
		if ttl := s.ttl(s.key("large", "all")); ttl < 50*time.Second || ttl > 61*time.Second {
			s.t.Errorf("the drained limit of 1000/m lives for %v", ttl)
		}
		await(s.t, "the states that are full again are gone", func() bool {
			return !strings.Contains(strings.Join(s.keys(), " "), "second~")
		})
	})
}

// TestFaultBigNumbers: whole numbers are neither rounded, cut to 32 bits nor written with an
// exponent; those that cannot be exact are refused.
func TestFaultBigNumbers(t *testing.T) {
	everywhere(t, `
limits:
  - {name: widest, rate: 1000000000/s, burst: 999999999999999, key: [user]}
  - {name: odd, rate: 100000/s, burst: 123451234512345, key: [user]}
  - {name: day, rate: 3000000000/d, burst: 3000000000, key: [user]}
`, func(s *site) {
		for name, burst := range map[string]int64{"widest": 999999999999999, "odd": 123451234512345, "day": 3000000000} {
			r := s.peek(name, "u1")
			if r.left() != burst || r.Limits[0].Limit != burst || r.header.Get("X-RateLimit-Limit") != strconv.FormatInt(burst, 10) {
				s.t.Errorf("%s: got %s, X-RateLimit-Limit %s", name, r.text, r.header.Get("X-RateLimit-Limit"))
			}
			if r := s.take(name, "u1", burst/3); r.left() < burst-burst/3 || r.left() > burst-burst/3+int64(2e9*r.got.Sub(r.sent).Seconds()) {
				s.t.Errorf("%s: %d are left", name, r.left())
			}
		}
		if r := s.take("day", "u2", 1); r.left() != 2999999999 {
			s.t.Errorf("got %d left of a day's 3,000,000,000 after one", r.left())
		}
		sidecar(s.t, "validate", writeConfig(s.t, "limits: [{name: a, rate: 1000000000/s, burst: 9007199254740993}]")).
			want(s.t, 1, "", "9007199254740992")
		if r := s.ask(s.t, `{"limit": "day", "key": "u1", "cost": 9007199254740993}`); r.status != http.StatusBadRequest {
			s.t.Errorf("a cost over 2^53: got %d %s", r.status, r.text)
		}
	})
}

// TestFaultOnTimeCallsPass: who waits exactly as long as told passes, each time.
func TestFaultOnTimeCallsPass(t *testing.T) {
	everywhere(t, `
limits:
  - {name: even, rate: 20/s, burst: 1, key: [user]}
  - {name: third, rate: 3/s, burst: 1, key: [user]}
`, func(s *site) {
		for name, rounds := range map[string]int{"even": 16, "third": 3} {
			s.take(name, "u1", 1)
			for range rounds {
				denied := s.take(name, "u1", 1)
				if denied.status == http.StatusOK {
					continue // the machine was slow
				}
				time.Sleep(time.Until(denied.got.Add(denied.wait())))
				if r := s.take(name, "u1", 1); r.status != http.StatusOK {
					s.t.Errorf("%s: told %v, then %v", name, denied.wait(), r.wait())
				}
			}
		}
	})
}

// TestFaultRefillEachPeriod: a state that ends with each period, or leaves its burst to be had
// twice, admits up to twice the limit.
func TestFaultRefillEachPeriod(t *testing.T) {
	everywhere(t, `
limits:
  - {name: paced, rate: 3/s, burst: 3, key: [user]}
  - {name: wide, rate: 17/2s, burst: 17, key: [user]}
  - {name: edge, rate: 100/s, burst: 100, key: [user]}
`, func(s *site) {
		start := time.Now()
		paced, wide, edge := 0, 0, 0
		for i := 0; time.Since(start) < 2*time.Second; i++ {
			if s.take("paced", "u1", 1).status == http.StatusOK {
				paced++
			}
			for range 3 {
				if s.take("wide", "u1", 1).status == http.StatusOK {
					wide++
				}
			}
			if s.take("edge", "u1", 20).status == http.StatusOK {
				edge += 20
			}
			time.Sleep(time.Until(start.Add(time.Duration(i) * 50 * time.Millisecond)))
		}
		took := time.Since(start).Seconds()
		for _, tt := range []struct {
			name        string
			passed      int
			burst, rate float64
		}{{"paced", paced, 3, 3}, {"wide", wide, 17, 8.5}, {"edge", edge, 100, 100}} {
			if most := int(tt.burst + tt.rate*took); tt.passed > most || tt.passed < most-int(tt.rate/2)-2 {
				s.t.Errorf("%s: %d passed in %.2f s, want about %d and no more", tt.name, tt.passed, took, most)
			}
		}
	})
}
