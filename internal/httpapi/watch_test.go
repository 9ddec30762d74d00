package httpapi_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/httpapi"
)

const (
	askSlow  = `{"limit":"slow","key":"u","max_wait_ms":600000}` // one a minute
	askPaced = `{"limit":"paced","key":"u","max_wait_ms":600000}`
	pace     = 100 * time.Millisecond
)

// waiting asks the limit "slow" on a new connection, and returns when the question waits.
func (s *sidecar) waiting(t *testing.T, dial func() *rawConn, body string) *rawConn {
	t.Helper()
	before := s.backlog(t)
	c := dial()
	c.say(post("/v1/check", body))
	poll(t, "the question does not wait", func() bool { return s.backlog(t) > before+30_000 })
	return c
}

// backlog returns how long, in ms, the limit "slow" needs to drain.
func (s *sidecar) backlog(t *testing.T) int64 {
	t.Helper()
	return s.look(t, "limit=slow&user=u").Limits[0].ResetAfterMillis
}

// A client that hangs up, in whatever way, is noticed at once: what it was charged is given back.
func TestHangUp(t *testing.T) {
	next := post("/v1/check", `{"limit":"tokens","key":"u"}`)
	tests := []struct {
		name   string
		hangUp func(t *testing.T, c *rawConn)
		answer bool // the client still reads one
	}{
		{"closes", func(t *testing.T, c *rawConn) { c.Close() }, false},
		{"closes behind another request", func(t *testing.T, c *rawConn) {
			c.say(next)
			c.Close()
		}, false},
		{"closes behind a large part of another request", func(t *testing.T, c *rawConn) {
			c.say("POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\n" + strings.Repeat(" ", 50_000))
			c.Close()
		}, false},
		{"closes its own side", closeWrite, true},
		{"closes its own side behind another request", func(t *testing.T, c *rawConn) {
			c.say(next)
			closeWrite(t, c)
		}, true},
		{"resets", func(t *testing.T, c *rawConn) {
			if tcp, ok := c.Conn.(*net.TCPConn); ok {
				if err := tcp.SetLinger(0); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
		}, false},
	}
	realBothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		s.ask(t, 200, askSlow)
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				before := s.backlog(t)
				c := s.waiting(t, dial, askSlow)
				tt.hangUp(t, c)
				hungUp := time.Now()
				poll(t, "the charge is not given back", func() bool { return s.backlog(t) <= before })
				if took := time.Since(hungUp); took > time.Second {
					t.Errorf("it was noticed after %v", took)
				}
				if tt.answer {
					got := c.read(t)
					wantProblem(t, got, 400, "hung-up", "")
					wantHeaders(t, got.header, map[string]string{"Connection": "close"})
					c.wantClosed(t)
				}
			})
		}
		if d := s.look(t, "limit=tokens&user=u"); d.left() != "[1000]" {
			t.Errorf("a request behind one that was given up was answered: %s left", d.left())
		}
		if strings.Contains(s.log.String(), "request failed") {
			t.Errorf("a client that hangs up is in the log:\n%s", s.log)
		}
	})
}

// A hang-up is noticed however late it comes: the time within which a request must arrive is no bound
// on how long one waits.
func TestLateHangUp(t *testing.T) {
	const timeout = 100 * time.Millisecond
	realBothWays(t, func(c *httpapi.Config) { c.ReadTimeout = timeout }, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		s.ask(t, 200, askSlow)
		c := s.waiting(t, dial, askSlow)
		time.Sleep(2 * timeout) // which must not end the watch
		if n := watchers(); n != 1 {
			t.Errorf("%d connections are watched, want 1", n)
		}
		c.Close()
		poll(t, "the charge is not given back", func() bool { return s.backlog(t) <= 60_000 })
	})
}

func closeWrite(t *testing.T, c *rawConn) {
	t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// What is sent behind a question that waits is neither lost nor taken for a hang-up, and the
// connection goes on as before, also past the time within which a request must arrive.
func TestPipeliningBehindAWait(t *testing.T) {
	short := func(c *httpapi.Config) { c.ReadTimeout = pace / 2 }
	realBothWays(t, short, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		c := dial()
		paced, other := post("/v1/check", askPaced), post("/v1/check", `{"limit":"tokens","key":"u","cost":1}`)
		started := time.Now()
		c.say(paced + paced + paced) // in one piece: the server has read the second with the first
		for i := range 3 {
			if i == 0 {
				time.Sleep(pace / 4) // until the others are waited for; now in pieces that it has not read
				c.say(other)
				c.say(other[:40])
			}
			if got := c.read(t); got.status != 200 || time.Since(started) < time.Duration(i)*pace-10*time.Millisecond {
				t.Fatalf("answer %d after %v: %s", i, time.Since(started), got)
			}
		}
		if got := c.read(t); got.status != 200 || !strings.Contains(got.body, `"remaining":999,`) {
			t.Fatalf("the request behind: got %s", got)
		}
		c.say(other[40:])
		if got := c.read(t); got.status != 200 || !strings.Contains(got.body, `"remaining":998,`) {
			t.Fatalf("the request in two parts: got %s", got)
		}
		for range 3 {
			c.say(paced)
			if got := c.read(t); got.status != 200 {
				t.Fatalf("on the same connection: got %s", got)
			}
			c.say(other)
			if got := c.read(t); got.status != 200 {
				t.Fatalf("after a wait: got %s", got)
			}
		}
	})
}

// Those who ask wait for as long as the bucket drains, in the order in which they came; a question
// that cannot be answered within its wait is denied at once, and is told how long until it can.
func TestWaits(t *testing.T) {
	s := startReal(t, nil)
	started := time.Now()
	answered := make(chan time.Duration, 5)
	for range 5 {
		go func() {
			got := s.check(t, askPaced)
			if got.status != 200 {
				t.Errorf("got %s", got)
			}
			answered <- time.Since(started)
		}()
	}
	for i := range 5 {
		if took, least := <-answered, time.Duration(i)*pace-10*time.Millisecond; took < least {
			t.Errorf("answer %d after %v, want %v at least", i, took, least)
		}
	}
	s.ask(t, 200, askSlow)
	d := s.ask(t, 429, `{"limit":"slow","key":"u","max_wait_ms":50000}`)
	if retry := d.Limits[0].RetryAfterMillis; retry < 9000 || retry > 10_000 {
		t.Errorf("got %+v, want that it can be asked again after 10 s", d)
	}
}

// Whoever hangs up and comes back with the same request_id finds its place kept, and has paid once.
func TestRequestIDKeepsItsPlace(t *testing.T) {
	realBothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		const named = `{"limit":"slow","key":"u","max_wait_ms":600000,"request_id":"r"}`
		s.ask(t, 200, askSlow)
		s.waiting(t, dial, named).Close()
		again := dial()
		again.say(post("/v1/check", named))
		if err := again.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := again.reader.Peek(1); !os.IsTimeout(err) {
			t.Errorf("got %v, want that it waits for its place", err)
		}
		if left := s.backlog(t); left < 110_000 || left > 120_000 {
			t.Errorf("a backlog of %d ms, want that of two", left)
		}
	})
}

// A sidecar that stops answers those who wait at once; everything else in flight is answered in full.
func TestShutdownEndsWaits(t *testing.T) {
	realBothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		s.ask(t, 200, askSlow)
		var waiting []*rawConn
		for range 5 {
			waiting = append(waiting, s.waiting(t, dial, askSlow))
		}
		s.stop()
		stopped := time.Now()
		for _, c := range waiting {
			got := c.read(t)
			wantProblem(t, got, 503, "shutting-down", "")
			wantHeaders(t, got.header, map[string]string{"Retry-After": "1", "X-Tidegate-Degraded": "", "Connection": "close"})
			c.wantClosed(t)
		}
		if took := time.Since(stopped); took > 2*time.Second {
			t.Errorf("they were answered after %v", took)
		}
		if err := s.waitEnded(t); err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
		if strings.Contains(s.log.String(), "request failed") {
			t.Errorf("the end is in the log as a failure:\n%s", s.log)
		}
	})
}

// Only those who wait are watched: another question of a client that is gone goes on.
func TestOthersAreNotWatched(t *testing.T) {
	bothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		hold := make(chan struct{})
		s.store.hold = hold
		c := dial()
		c.say(askRaw)
		<-s.store.held
		c.Close()
		s.stop()
		time.Sleep(50 * time.Millisecond) // in which it would be noticed
		close(hold)
		if err := s.waitEnded(t); err != nil {
			t.Fatal(err)
		}
		if s.store.calls != 1 {
			t.Errorf("the store answered %d calls, want 1", s.store.calls)
		}
	})
}

// Many who wait and hang up at once leave nothing behind.
func TestManyHangUps(t *testing.T) {
	const many = 200
	realBothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		backlog := func(user int) int64 {
			return s.look(t, fmt.Sprintf("limit=slow&user=u%d", user)).Limits[0].ResetAfterMillis
		}
		backlog(0) // opens a connection of its own
		files := openFiles(t)
		var clients []*rawConn
		for i := range many {
			c := dial()
			c.say(post("/v1/check", fmt.Sprintf(`{"limit":"slow","key":"u%d"}`, i)) +
				post("/v1/check", fmt.Sprintf(`{"limit":"slow","key":"u%d","max_wait_ms":600000}`, i)))
			clients = append(clients, c)
		}
		for i := range many {
			poll(t, "one does not wait", func() bool { return backlog(i) > 60_000 })
		}
		if n := watchers(); n != many {
			t.Errorf("%d connections are watched, want %d", n, many)
		}
		for _, c := range clients {
			c.Close()
		}
		for i := range many {
			poll(t, "a charge is not given back", func() bool { return backlog(i) <= 60_000 })
		}
		poll(t, "files are left", func() bool { return openFiles(t) <= files })
		poll(t, "connections are still watched", func() bool { return watchers() == 0 })
	})
}

// watchers returns how many goroutines watch a connection.
func watchers() int {
	for stacks := make([]byte, 1<<20); ; stacks = make([]byte, 2*len(stacks)) {
		if n := runtime.Stack(stacks, true); n < len(stacks) {
			return strings.Count(string(stacks[:n]), "created by github.com/tidegate/tidegate/internal/httpapi.watch ")
		}
	}
}

// openFiles returns how many file descriptors this process has open, or 0 where that is unknown.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
