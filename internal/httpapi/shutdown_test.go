package httpapi_test

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/httpapi"
)

// waitEnded waits for Run and returns what it returned.
func (s *sidecar) waitEnded(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("Run did not end")
		return nil
	}
}

// poll calls done until it returns true, for a few seconds.
func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for start := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal(what)
		}
	}
}

func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	bothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		idle, silent := dial(), dial()
		idle.say(askRaw)
		idle.read(t)
		hold := make(chan struct{})
		s.store.hold = hold
		var busy []*rawConn
		for range 10 {
			c := dial()
			c.say(askRaw)
			busy = append(busy, c)
			<-s.store.held
		}
		s.stop()
		stopped := time.Now()
		poll(t, "the listener is still open", func() bool {
			c, err := net.Dial("tcp", s.tcp)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		idle.wantClosed(t)
		silent.wantClosed(t)
		if took := time.Since(stopped); took > 3*time.Second {
			t.Errorf("idle connections were closed after %v", took)
		}
		if _, err := os.Lstat(s.unix); err == nil {
			t.Error("the socket file is still there")
		}
		select {
		case err := <-s.ended:
			t.Fatalf("Run ended with requests in flight: %v", err)
		default:
		}
		close(hold)
		for _, c := range busy {
			got := c.read(t)
			if got.status != 200 && got.status != 429 {
				t.Errorf("in flight: got %s", got)
			}
			wantHeaders(t, got.header, map[string]string{"Connection": "close"})
			c.wantClosed(t)
		}
		if err := s.waitEnded(t); err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
	})
}

func TestShutdownTimeout(t *testing.T) {
	s := start(t, func(c *httpapi.Config) { c.ShutdownTimeout = 300 * time.Millisecond })
	s.store.hold = make(chan struct{})
	busy, half := dial(t, "tcp", s.tcp), dial(t, "tcp", s.tcp)
	busy.say(askRaw)
	<-s.store.held
	half.say(askRaw[:50])
	s.stop()
	stopped := time.Now()
	if err := s.waitEnded(t); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if took := time.Since(stopped); took > 5*time.Second {
		t.Errorf("Run ended after %v", took)
	}
	_, _ = io.ReadAll(busy) // what matters is that both end
	_, _ = io.ReadAll(half)
	if log := s.log.String(); !strings.Contains(log, "connections cut") {
		t.Errorf("the cut is not in the log:\n%s", log)
	}
}

func TestShutdownAtOnce(t *testing.T) {
	for range 20 { // the end of ctx races with the beginning of Run
		s := start(t, nil)
		s.stop()
		if err := s.waitEnded(t); err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", s.tcp); err == nil {
			c.Close()
			t.Fatal("the listener is still open")
		}
		s.ended <- nil // for the end of the test
	}
}

func TestListenRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	server := httpapi.New(httpapi.Config{Limiter: newLimiter(t, newStore()), Address: taken.Addr().String()})
	if err := server.Listen(); err == nil || !strings.Contains(err.Error(), "httpapi: listen: ") {
		t.Errorf("a taken port: got %v", err)
	}

	path := socketPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server = httpapi.New(httpapi.Config{Limiter: newLimiter(t, newStore()), Address: "127.0.0.1:0", Unix: path})
	if err := server.Listen(); err == nil || len(server.Addrs()) != 0 {
		t.Errorf("a file at the socket's path: got %v and open listeners %v, want an error and none", err, server.Addrs())
	}
}
