package main_test

import (
	encoding "encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// stepClock makes the state of a limit as it would be had Redis's clock stepped by as much.
func (s *site) stepClock(step time.Duration, limit, value string) {
	s.t.Helper()
	key := s.key(limit, value)
	if s.state == "string" {
		state := []byte(s.server.Do(s.t, "GET", key).(string))
		for _, at := range []int{2, 3} { // when it was written, and until when it counts
			number := state[8*at:]
			moved := math.Float64frombits(encoding.LittleEndian.Uint64(number)) - float64(step.Microseconds())
			encoding.LittleEndian.PutUint64(number, math.Float64bits(moved))
		}
		s.server.Do(s.t, "SET", key, string(state), "KEEPTTL")
		return
	}
	for _, field := range []string{"at", "til"} {
		s.server.Do(s.t, "HSET", key, field, s.moved(s.server.Do(s.t, "HGET", key, field).(string), -step))
	}
}

func (s *site) moved(us string, by time.Duration) string {
	s.t.Helper()
	at, err := strconv.ParseInt(us, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return strconv.FormatInt(at+by.Microseconds(), 10)
}

// TestFaultClockSteps: a clock that steps back neither locks callers out nor makes their balance
// negative; one that steps forward is worth one burst at most.
func TestFaultClockSteps(t *testing.T) {
	everywhere(t, `
limits:
  - {name: five, rate: 5/s, burst: 5, key: [user]}
  - {name: hourly, rate: 5/h, burst: 5, key: [user]}
`, func(s *site) {
		if s.server == nil {
			return // its clock is monotonic
		}
		drain := func(key string) {
			s.count(5, "five", key)
			if r := s.take("five", key, 1); r.status == http.StatusOK {
				s.take("five", key, 1)
			}
		}
		drain("back")
		s.stepClock(-time.Minute, "five", "back")
		stepped := time.Now()
		if r := s.peek("five", "back"); r.left() < 0 || r.reset() > time.Second {
			s.t.Errorf("after a step back got %s", r.text)
		}
		await(s.t, "a call after the step back passes", func() bool { return s.take("five", "back", 1).status == http.StatusOK })
		if waited := time.Since(stepped); waited > time.Second {
			s.t.Errorf("after a step back nothing passed for %v", waited)
		}
		if ttl := s.ttl(s.key("five", "back")); ttl <= 0 || ttl > 1001*time.Millisecond {
			s.t.Errorf("after a step back the key lives for %v, want a second at most", ttl)
		}

		s.wantPass(5, 0, "hourly", "forth")
		s.stepClock(2*time.Hour, "hourly", "forth")
		stepped = time.Now()
		await(s.t, "the denials that are remembered end", func() bool { return s.take("hourly", "forth", 1).status == http.StatusOK })
		if waited := time.Since(stepped); waited > time.Second+slackTime {
			s.t.Errorf("what came back was denied for %v", waited)
		}
		s.wantPass(4, 0, "hourly", "forth")
	})
}

// TestFaultStateOutlivesItsWriter: what one process wrote another one reads as the same time, and
// a new process begins where the old one was.
func TestFaultStateOutlivesItsWriter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const limits = "limits: [{name: two, rate: 2/10s, burst: 2, key: [user]}]"
	one := newSite(t, server, server.Addr(), "timeout: 10s", limits)
	one.wantPass(2, 0.2, "two", "u1")
	one.signal(t, syscall.SIGTERM)
	one.wantExit(t, 0)
	other := newSite(t, server, server.Addr(), "timeout: 10s", limits)
	if r := other.take("two", "u1", 1); r.status != http.StatusTooManyRequests || r.wait() > 5*time.Second || r.reset() > 10*time.Second {
		t.Errorf("got %d %s, want a wait of 5 s at most", r.status, r.text)
	}
}

// TestFaultKeysWithoutTimeToLive: every key has one, in the right unit, whatever the first cost
// was; a key that lost it neither locks anybody out nor stays so.
func TestFaultKeysWithoutTimeToLive(t *testing.T) {
	everywhere(t, `
limits:
  - {name: quick, rate: 4/s, burst: 2, key: [user]}
  - {name: minute, rate: 100/60s, burst: 100, key: [user]}
`, func(s *site) {
		if s.server == nil {
			return // it has no keys
		}
		s.wantPass(2, 4, "quick", "u1")
		s.server.Do(s.t, "PERSIST", s.key("quick", "u1"))
		for _, first := range []int64{0, 1, 33, 100} {
			user := fmt.Sprintf("first-%d", first)
			s.take("minute", user, first)
			s.take("minute", user, 33)
			s.take("minute", user, 100) // denied
			if ttl, most := s.ttl(s.key("minute", user)), time.Minute+time.Second; ttl <= 0 || ttl > most {
				s.t.Errorf("after a first cost of %d the key lives for %v, want up to %v", first, ttl, most)
			}
		}
		time.Sleep(time.Second) // two times from empty to full
		if ttl := s.ttl(s.key("quick", "u1")); ttl >= 0 {
			s.t.Errorf("PERSIST left the time to live %v", ttl)
		}
		s.wantPass(2, 4, "quick", "u1")
		for _, key := range s.server.Do(s.t, "KEYS", s.prefix+":*").([]any) {
			if ttl := s.ttl(key.(string)); ttl == -time.Millisecond {
				s.t.Errorf("%s has no time to live", key)
			}
		}
	})
}

// TestFaultShortIntervals: under a crowd, intervals of a second and less give no expiry of zero or
// below, no error, and no failed call on a hot key.
func TestFaultShortIntervals(t *testing.T) {
	everywhere(t, `
limits:
  - {name: second, rate: 50/s, burst: 50, key: [user]}
  - {name: tenth, rate: 5/100ms, burst: 5, key: [user]}
  - {name: micro, rate: 1000000/s, burst: 1, key: [user]}
`, func(s *site) {
		start := time.Now()
		crowd(50, func() {
			for range 4 {
				for _, limit := range []string{"second", "tenth", "micro"} {
					s.take(limit, "hot", 1) // any other status than 200 and 429 fails
				}
			}
		})
		took := time.Since(start).Seconds()
		passed := s.metric(s.t, `tidegate_decisions_total{limit="second",result="allowed"`)
		if most := 50 + 50*took; passed > most || passed < 50 {
			s.t.Errorf("%v passed in %.2f s, want 50 to %v", passed, took, most)
		}
		if n := s.metric(s.t, "tidegate_redis_errors_total"); n > 0 {
			s.t.Errorf("%v calls to Redis failed", n)
		}
		if log := s.logged(); strings.Contains(log, `"ERROR"`) || strings.Contains(log, "expire") {
			s.t.Errorf("logged %s", log)
		}
	})
}
