package main_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// newClockSite is a site on a Redis whose clock the test sets. The sidecar knows no other.
func newClockSite(t *testing.T, limits string) *site {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	return newSite(t, server, server.Addr(), "timeout: 10s", limits)
}

// awaitPass asks until a request passes, which must be within most, and returns that answer.
func (s *site) awaitPass(limit, key string, most time.Duration) *reply {
	s.t.Helper()
	start := time.Now()
	for {
		r := s.take(limit, key, 1)
		if r.status == http.StatusOK {
			return r
		}
		if time.Since(start) > most {
			s.t.Fatalf("%s %s: nothing passes within %v: %s", limit, key, most, r.text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// utc is a time of the calendar.
func utc(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestFaultCalendar: a quota is new once a civil day, week or month of its zone, neither before nor
// after, through months of any length, leap years and days of 23 and 25 hours; what a denial says is
// when that is.
func TestFaultCalendar(t *testing.T) {
	s := newClockSite(t, `
limits:
  - {name: month, algorithm: fixed_window, period: month, limit: 3, key: [user]}
  - {name: week, algorithm: fixed_window, period: week, limit: 3, key: [user], state: string}
  - {name: shanghai, algorithm: fixed_window, period: day, timezone: Asia/Shanghai, limit: 3, key: [user]}
  - {name: kathmandu, algorithm: fixed_window, period: day, timezone: Asia/Kathmandu, limit: 3, key: [user]}
  - {name: paris, algorithm: fixed_window, period: day, timezone: Europe/Paris, limit: 3, key: [user]}
  - {name: newyork, algorithm: fixed_window, period: day, timezone: America/New_York, limit: 3, key: [user], state: string}
`)
	tests := []struct {
		name, limit string
		used        string // when it is used up
		before      string // still used up
		next        string // from when on it is new
		after       string // used up again then, until
		end         string
		lasts       time.Duration // of the new period
	}{
		{"January", "month", "2026-01-01 00:00:05", "2026-01-31 23:59:58", "2026-02-01 00:00:00", "2026-02-28 23:59:58", "2026-03-01 00:00:00", 28 * 24 * time.Hour},
		{"a leap February", "month", "2028-01-31 10:00:00", "2028-01-31 23:59:58", "2028-02-01 00:00:00", "2028-02-29 23:59:58", "2028-03-01 00:00:00", 29 * 24 * time.Hour},
		{"March", "month", "2026-03-31 10:00:00", "2026-03-31 23:59:58", "2026-04-01 00:00:00", "2026-04-30 23:59:58", "2026-05-01 00:00:00", 30 * 24 * time.Hour},
		{"a week ends on Sunday", "week", "2026-06-10 10:00:00", "2026-06-14 23:59:58", "2026-06-15 00:00:00", "2026-06-21 23:59:58", "2026-06-22 00:00:00", 7 * 24 * time.Hour},
		{"east of Greenwich", "shanghai", "2026-06-10 15:00:00", "2026-06-10 15:59:58", "2026-06-10 16:00:00", "2026-06-11 15:59:58", "2026-06-11 16:00:00", 24 * time.Hour},
		{"a quarter of an hour", "kathmandu", "2026-06-10 18:00:00", "2026-06-10 18:14:58", "2026-06-10 18:15:00", "2026-06-11 18:14:58", "2026-06-11 18:15:00", 24 * time.Hour},
		{"a day of 25 hours", "paris", "2025-10-25 10:00:00", "2025-10-25 21:59:58", "2025-10-25 22:00:00", "2025-10-26 22:59:58", "2025-10-26 23:00:00", 25 * time.Hour},
		{"a day of 23 hours", "paris", "2025-03-29 10:00:00", "2025-03-29 22:59:58", "2025-03-29 23:00:00", "2025-03-30 21:59:58", "2025-03-30 22:00:00", 23 * time.Hour},
		{"25 hours in America", "newyork", "2025-11-01 10:00:00", "2025-11-02 03:59:58", "2025-11-02 04:00:00", "2025-11-03 04:59:58", "2025-11-03 05:00:00", 25 * time.Hour},
		{"23 hours in America", "newyork", "2025-03-08 10:00:00", "2025-03-09 04:59:58", "2025-03-09 05:00:00", "2025-03-10 03:59:58", "2025-03-10 04:00:00", 23 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			s.server.SetClock(utc(t, tt.used))
			for range 3 {
				s.awaitPass(tt.limit, tt.name, 2*time.Second)
			}
			s.crossing(tt.limit, tt.name, tt.before, tt.next)
			if wait := s.useUp(tt.limit, tt.name); wait > tt.lasts || wait < tt.lasts-5*time.Second {
				t.Errorf("the new period lasts for another %v, want %v", wait, tt.lasts)
			}
			s.crossing(tt.limit, tt.name, tt.after, tt.end)
		})
	}
}

// crossing sets the clock to two seconds before a period's end, where nothing passes, and waits until
// something does: not before the end, and once it has come.
func (s *site) crossing(limit, key, before, end string) {
	s.t.Helper()
	s.server.SetClock(utc(s.t, before))
	if r := s.take(limit, key, 1); r.status == http.StatusOK {
		s.t.Errorf("at %s: %s", before, r.text)
	}
	start := time.Now()
	s.awaitPass(limit, key, 8*time.Second)
	// Only Redis's clock says when that was.
	if left := utc(s.t, end).Sub(utc(s.t, before)); time.Since(start) < left-500*time.Millisecond {
		s.t.Errorf("passed %v after %s, before %s", time.Since(start), before, end)
	}
}

// useUp takes what is left of a limit, and returns how long a denial says to wait.
func (s *site) useUp(limit, key string) time.Duration {
	s.t.Helper()
	for range 10 {
		if r := s.take(limit, key, 1); r.status == http.StatusTooManyRequests {
			return r.wait()
		}
	}
	s.t.Fatalf("%s %s: 10 more passed", limit, key)
	return 0
}

// TestFaultRedisClockSteps: a step of Redis's clock back locks nobody out and gives nothing away, one forward
// gives at most what a pause would have given.
func TestFaultRedisClockSteps(t *testing.T) {
	s := newClockSite(t, `
limits:
  - {name: bucket, rate: 5/s, burst: 5, key: [user]}
  - {name: string, rate: 5/s, burst: 5, key: [user], state: string}
  - {name: leaky, algorithm: leaky_bucket, rate: 5/s, burst: 5, key: [user]}
  - {name: leakylog, algorithm: leaky_bucket_log, rate: 5/s, capacity: 5, key: [user]}
  - {name: log, algorithm: sliding_window_log, limit: 5, window: 1s, key: [user]}
  - {name: sliding, algorithm: sliding_window, limit: 5, window: 1s, key: [user]}
  - {name: fixed, algorithm: fixed_window, limit: 5, window: 1s, key: [user]}
  - {name: slots, algorithm: concurrency, limit: 5, ttl: 1s, key: [user]}
`)
	for _, limit := range []string{"bucket", "string", "leaky", "leakylog", "log", "sliding", "fixed", "slots"} {
		t.Run(limit, func(t *testing.T) {
			s.t = t
			at := utc(t, "2026-06-10 12:00:00")
			s.server.SetClock(at)
			s.take(limit, limit, 1)
			s.useUp(limit, limit)
			s.server.SetClock(at.Add(-time.Minute))
			start := time.Now()
			passed := 0
			// A denial may be remembered for a second; Redis, asked after that, begins a window of its own.
			for time.Since(start) < 2300*time.Millisecond {
				if s.take(limit, limit, 1).status == http.StatusOK {
					passed++
				}
				time.Sleep(10 * time.Millisecond)
			}
			most := 1 + int(5*time.Since(start).Seconds()) // what drains or refills
			if slices.Contains([]string{"log", "sliding", "fixed", "slots"}, limit) {
				most = 5 * int(time.Since(start).Seconds()) // none while the old window lasts on
			}
			if passed == 0 || passed > most {
				t.Errorf("%d passed in %v after a step back, want 1 to %d", passed, time.Since(start), most)
			}
			s.useUp(limit, limit)
			s.server.SetClock(at.Add(time.Hour))
			start = time.Now()
			s.awaitPass(limit, limit, 1500*time.Millisecond)
			passed = 1
			for range 20 {
				if s.take(limit, limit, 1).status == http.StatusOK {
					passed++
				}
			}
			if most := 5 + int(5*time.Since(start).Seconds()) + 1; passed > most {
				t.Errorf("%d passed after a step forward, want at most %d", passed, most)
			}
		})
	}
}
