package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestFaultLeakNeverDrains: a leaky bucket drains while it is asked, in parts of a request, and lets
// one pass only when all of it fits.
func TestFaultLeakNeverDrains(t *testing.T) {
	everywhere(t, `
limits:
  - {name: leak, algorithm: leaky_bucket, rate: 10/2s, burst: 10, key: [user]}
  - {name: busy, algorithm: leaky_bucket, rate: 10/3s, burst: 10, key: [user]}
  - {name: whole, algorithm: leaky_bucket, rate: 4/s, burst: 2, key: [user]}
  - {name: log, algorithm: leaky_bucket_log, rate: 4/s, capacity: 2, key: [user]}
  - {name: second, algorithm: leaky_bucket, rate: 3/s, burst: 3, key: [user]}
`, func(s *site) {
		full := s.take("leak", "u1", 10)
		// Asked all the time, without success: that must not stop the leak.
		for range 20 {
			s.take("leak", "u1", 10)
			time.Sleep(40 * time.Millisecond)
		}
		time.Sleep(time.Until(full.got.Add(time.Second)))
		if r := s.take("leak", "u1", 5); r.status != http.StatusOK {
			s.t.Errorf("half drained: %s", r.text)
		}
		if r := s.take("leak", "u1", 5); r.status != http.StatusTooManyRequests || r.wait() > time.Second {
			s.t.Errorf("the other half: %s", r.text)
		}

		start := time.Now()
		var last *reply
		for i := range 11 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * 100 * time.Millisecond)))
			last = s.take("busy", "u1", 1)
		}
		if least := int64(10 - 11 + 3); last.left() < least {
			s.t.Errorf("after 11 requests in 1 s at a leak of one in 300 ms %d are left, want %d", last.left(), least)
		}

		for _, limit := range []string{"whole", "log"} {
			s.count(2, limit, "u1")
			if r := s.take(limit, "u1", 1); r.status != http.StatusTooManyRequests || r.wait() > 250*time.Millisecond {
				s.t.Errorf("%s: a sliver of the leak: %s", limit, r.text)
			}
			s.wantTight(limit, "u1")
		}

		passed, took := int64(0), time.Duration(0)
		for range 25 {
			n, t := s.count(1, "second", "u1")
			passed, took = passed+n, took+t+100*time.Millisecond
			time.Sleep(100 * time.Millisecond)
		}
		if most := 3 + int64(3*took.Seconds()) + 1; passed > most {
			s.t.Errorf("3/s passed %d in %v, want at most %d", passed, took, most)
		}
	})
}

// TestFaultSlidingCounter: the share of the window before counts in full, is not rounded away, and is
// not forgotten when the window is over.
func TestFaultSlidingCounter(t *testing.T) {
	everywhere(t, `
limits:
  - {name: one, algorithm: sliding_window, limit: 1, window: 1s, key: [user]}
  - {name: hundred, algorithm: sliding_window, limit: 100, window: 2s, key: [user]}
`, func(s *site) {
		first := s.take("one", "u1", 1)
		for _, at := range []time.Duration{1050, 1500, 1850} {
			time.Sleep(time.Until(first.got.Add(at * time.Millisecond)))
			if r := s.take("one", "u1", 1); r.status != http.StatusTooManyRequests && r.got.Before(first.sent.Add(2*time.Second)) {
				s.t.Errorf("at %v: %s", at*time.Millisecond, r.text)
			}
		}

		first = s.take("hundred", "u1", 50)
		time.Sleep(time.Until(first.got.Add(2200 * time.Millisecond)))
		r := s.take("hundred", "u1", 10)
		// 50 × (1 − elapsed ÷ window) of the window before still count.
		least, most := 90-shareOf(50, r.sent.Sub(first.got)), 90-shareOf(50, r.got.Sub(first.sent))
		if r.left() < least || r.left() > most {
			s.t.Errorf("left %d, want %d to %d", r.left(), least, most)
		}
		if s.server != nil {
			if ttl := s.ttl(s.key("hundred", "u1")); ttl <= 2*time.Second || ttl > 4*time.Second {
				s.t.Errorf("the counters live for %v, want more than a window", ttl)
			}
		}
	})
}

// shareOf returns what of n requests of the window before counts, elapsed after that window began.
func shareOf(n int64, elapsed time.Duration) int64 {
	const window = 2 * time.Second
	return (n*int64(2*window-elapsed) + int64(window) - 1) / int64(window)
}

// TestFaultSlidingLog: requests of one instant count each, expired ones are gone before those left are
// counted, and the log lives no longer than its newest entry.
func TestFaultSlidingLog(t *testing.T) {
	everywhere(t, `
limits:
  - {name: five, algorithm: sliding_window_log, limit: 5, window: 1h, key: [user]}
  - {name: three, algorithm: sliding_window_log, limit: 3, window: 2s, key: [user]}
  - {name: edge, algorithm: sliding_window_log, limit: 5, window: 2s, key: [user]}
  - {name: fixed, algorithm: fixed_window, limit: 5, window: 2s, key: [user]}
`, func(s *site) {
		crowd(1000, func() { s.take("five", "u1", 1) })
		if r := s.peek("five", "u1"); r.left() != 0 {
			s.t.Errorf("left %d after 1,000 at once", r.left())
		}
		if s.server != nil {
			key := s.key("five", "u1")
			if n := s.server.Do(s.t, "ZCARD", key).(int64); n != 5 {
				s.t.Errorf("%d entries, want 5", n)
			}
			if ttl := s.ttl(key); ttl <= 59*time.Minute || ttl > time.Hour {
				s.t.Errorf("the log lives for %v, want an hour", ttl)
			}
		}
		s.wantPass(3, 0, "three", "u1")
		s.wantTight("three", "u1")
		time.Sleep(2010 * time.Millisecond)
		s.wantPass(3, 0, "three", "u1")

		// 1 at 0, 4 just before the window's end, 5 just after it: a fixed window passes all, the log 1.
		for _, limit := range []string{"fixed", "edge"} {
			first := s.take(limit, "u1", 1)
			time.Sleep(time.Until(first.got.Add(1800 * time.Millisecond)))
			before := s.take(limit, "u1", 4)
			if before.got.After(first.sent.Add(2 * time.Second)) {
				s.t.Logf("%s: this machine is too slow for the edge", limit)
				continue
			}
			time.Sleep(time.Until(first.got.Add(2050 * time.Millisecond)))
			passed, _ := s.count(5, limit, "u1")
			if want := map[string]int64{"fixed": 5, "edge": 1}[limit]; passed != want {
				s.t.Errorf("%s: %d passed just after the edge, want %d", limit, passed, want)
			}
		}
	})
}

// TestFaultFixedWindow: one window lasts as long as it says, however often it is asked, its time to
// live is set once, and its end is what a denial says.
func TestFaultFixedWindow(t *testing.T) {
	everywhere(t, fmt.Sprintf(`
limits:
  - {name: three, algorithm: fixed_window, limit: 3, window: 900ms, key: [user]}
  - {name: ten, algorithm: fixed_window, limit: 10, window: 1m, key: [user]}
  - {name: many, algorithm: fixed_window, limit: 3000, window: 1s, key: [user]}
  - {name: daily, algorithm: fixed_window, period: day, timezone: %q, limit: 3, key: [user]}
  - {name: huge, algorithm: fixed_window, period: day, timezone: %[1]q, limit: 3000000000, key: [user]}
`, noon()), func(s *site) {
		start := time.Now()
		for i := range 8 { // one in 450 ms never fills a window of three in 900
			time.Sleep(time.Until(start.Add(time.Duration(i) * 450 * time.Millisecond)))
			if r := s.take("three", "u1", 1); r.status != http.StatusOK {
				s.t.Errorf("request %d: %s", i, r.text)
			}
		}
		first := s.take("ten", "u1", 10)
		time.Sleep(500 * time.Millisecond)
		denied := s.take("ten", "u1", 1)
		if least, most := time.Minute-denied.got.Sub(first.sent), time.Minute-denied.sent.Sub(first.got)+time.Millisecond; denied.wait() < least || denied.wait() > most+20*time.Millisecond {
			s.t.Errorf("a denial in the window: wait %v, want %v to %v", denied.wait(), least, most)
		}
		if s.server != nil {
			if ttl := s.ttl(s.key("ten", "u1")); ttl > time.Minute-500*time.Millisecond {
				s.t.Errorf("a denial pushed the time to live to %v", ttl)
			}
			if r, ttl := s.peek("ten", "u1"), s.ttl(s.key("ten", "u1")); r.reset() < ttl-time.Second || r.reset() > ttl+time.Second {
				s.t.Errorf("the window ends in %v, its key in %v", r.reset(), ttl)
			}
		}
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			if r := s.take("many", "u1", 1); r.status != http.StatusOK {
				s.t.Fatalf("far below the limit: %s", r.text)
			}
		}
		for range 3 {
			s.take("daily", "u1", 1)
			time.Sleep(5 * time.Millisecond)
		}
		if r := s.take("daily", "u1", 1); r.status != http.StatusTooManyRequests || r.wait() < 2*time.Hour || r.header.Get("X-Should-Retry") != "false" {
			s.t.Errorf("the fourth of three a day: %s, X-Should-Retry %q", r.text, r.header.Get("X-Should-Retry"))
		}
		if r := s.take("huge", "u1", 1); r.left() != 2_999_999_999 {
			s.t.Errorf("left %d of a large quota", r.left())
		}
	})
}

// TestFaultEveryAlgorithmAtTheEdge: a cost above the limit is refused at once, without a wait and
// without a trace; a limit of 0 lets nothing pass; a peek neither charges nor makes a key.
func TestFaultEveryAlgorithmAtTheEdge(t *testing.T) {
	limits := []string{"leaky", "leakylog", "log", "sliding", "fixed", "daily"}
	const config = `
  - {name: leaky%[1]s, algorithm: leaky_bucket, rate: 1/h, burst: %[2]d, key: [user]}
  - {name: leakylog%[1]s, algorithm: leaky_bucket_log, rate: 1/h, capacity: %[2]d, key: [user]}
  - {name: log%[1]s, algorithm: sliding_window_log, limit: %[2]d, window: 1h, key: [user]}
  - {name: sliding%[1]s, algorithm: sliding_window, limit: %[2]d, window: 1h, key: [user]}
  - {name: fixed%[1]s, algorithm: fixed_window, limit: %[2]d, window: 1h, key: [user]}
  - {name: daily%[1]s, algorithm: fixed_window, limit: %[2]d, period: day, timezone: %[3]q, key: [user]}
  - {name: slots%[1]s, algorithm: concurrency, limit: %[2]d, ttl: 1h, key: [user]}
`
	everywhere(t, "limits:"+fmt.Sprintf(config, "", 100, noon())+fmt.Sprintf(config, "-none", 0, noon()), func(s *site) {
		for _, limit := range limits {
			if r := s.take(limit, "u1", 101); r.status != http.StatusTooManyRequests || !r.Never || r.wait() >= 0 || r.header.Get("Retry-After") != "" {
				s.t.Errorf("%s: a cost above the limit: %s", limit, r.text)
			}
			if r := s.peek(limit, "u1"); r.left() != 100 || r.reset() != 0 {
				s.t.Errorf("%s: a peek: %s", limit, r.text)
			}
		}
		for _, limit := range append(limits, "slots") {
			for range 3 {
				if r := s.take(limit+"-none", "u1", 1); r.status != http.StatusTooManyRequests || !r.Never || r.header.Get("Retry-After") != "" {
					s.t.Errorf("%s: a limit of 0: %s", limit, r.text)
				}
			}
		}
		if keys := s.keys(); len(keys) > 0 {
			s.t.Errorf("keys without a charge: %v", keys)
		}
		for _, limit := range limits {
			if r := s.take(limit, "u1", 100); r.status != http.StatusOK || r.left() != 0 {
				s.t.Errorf("%s: all of it: %s", limit, r.text)
			}
		}
		if s.server == nil {
			return
		}
		for _, key := range s.keys() {
			if ttl := s.ttl(key); ttl <= 0 {
				s.t.Errorf("%s lives for %v", key, ttl)
			}
		}
	})
}

// TestFaultLostTimeToLive: a key that lost its time to live counts as absent when its time has come,
// and gets one again.
func TestFaultLostTimeToLive(t *testing.T) {
	everywhere(t, `
limits:
  - {name: leaky, algorithm: leaky_bucket, rate: 10/3s, burst: 3, key: [user]}
  - {name: leakylog, algorithm: leaky_bucket_log, rate: 10/3s, capacity: 3, key: [user]}
  - {name: log, algorithm: sliding_window_log, limit: 3, window: 900ms, key: [user]}
  - {name: sliding, algorithm: sliding_window, limit: 3, window: 900ms, key: [user]}
  - {name: fixed, algorithm: fixed_window, limit: 3, window: 900ms, key: [user]}
  - {name: slots, algorithm: concurrency, limit: 3, ttl: 900ms, key: [user]}
`, func(s *site) {
		if s.server == nil {
			return
		}
		limits := []string{"leaky", "leakylog", "log", "sliding", "fixed", "slots"}
		for _, limit := range limits {
			s.count(3, limit, "u1")
			s.server.Do(s.t, "PERSIST", s.key(limit, "u1"))
		}
		time.Sleep(1300 * time.Millisecond)
		for _, limit := range limits {
			cost := int64(1)
			if strings.HasPrefix(limit, "leaky") {
				cost = 3 // what drains sooner might be gone before a slow machine looks
			}
			if r := s.take(limit, "u1", cost); r.status != http.StatusOK {
				s.t.Errorf("%s: %s", limit, r.text)
			}
			if ttl := s.ttl(s.key(limit, "u1")); ttl <= 0 || ttl > 2*time.Second {
				s.t.Errorf("%s lives for %v", limit, ttl)
			}
		}
	})
}

// TestFaultShortWindows: a crowd on windows and slots of a second and of 100 ms meets no error, and no key
// is left without a time to live.
func TestFaultShortWindows(t *testing.T) {
	everywhere(t, `
limits:
  - {name: log-100ms, algorithm: sliding_window_log, limit: 20, window: 100ms, key: [user]}
  - {name: log-1s, algorithm: sliding_window_log, limit: 20, window: 1s, key: [user]}
  - {name: sliding-100ms, algorithm: sliding_window, limit: 20, window: 100ms, key: [user]}
  - {name: sliding-1s, algorithm: sliding_window, limit: 20, window: 1s, key: [user]}
  - {name: fixed-100ms, algorithm: fixed_window, limit: 20, window: 100ms, key: [user]}
  - {name: fixed-1s, algorithm: fixed_window, limit: 20, window: 1s, key: [user]}
  - {name: slots-100ms, algorithm: concurrency, limit: 20, ttl: 100ms, key: [user]}
  - {name: slots-1s, algorithm: concurrency, limit: 20, ttl: 1s, key: [user]}
  - {name: leakylog, algorithm: leaky_bucket_log, rate: 200/s, capacity: 20, key: [user]}
`, func(s *site) {
		limits := []string{"log-100ms", "log-1s", "sliding-100ms", "sliding-1s", "fixed-100ms", "fixed-1s", "slots-100ms", "slots-1s", "leakylog"}
		end := time.Now().Add(700 * time.Millisecond)
		crowd(200, func() {
			for time.Now().Before(end) {
				for _, limit := range limits {
					s.take(limit, "u1", 1)
				}
			}
		})
		for _, key := range s.keys() {
			if ttl := s.ttl(key); ttl < 0 && ttl != -2*time.Millisecond { // which is gone meanwhile
				s.t.Errorf("%s lives for %v", key, ttl)
			}
		}
	})
}
