package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// patience bounds every wait for a server: to be ready, to reply to Do, to end.
	patience = 10 * time.Second
	pollPace = 5 * time.Millisecond
	// maxSocketPath keeps well below the 108 bytes that Linux has for the path of a socket.
	maxSocketPath = 100
)

var errPortTaken = errors.New("port is taken")

// Server is a redis-server process of one test. Its methods are safe for concurrent use. Those
// without a testing.TB report a failure, with t.Errorf, to the test that called Start.
type Server struct {
	t        testing.TB
	binary   string
	settings settings
	dir      string
	socket   string
	port     int // constant once Start has returned
	output   tail
	clock    *clock // nil: the machine's

	mu      sync.Mutex
	process *process // guarded by mu; nil before the first launch

	controlMu sync.Mutex // taken after mu, where both are
	control   *Conn      // guarded by controlMu; nil: Do dials
}

// Start runs redis-server, which must be in PATH, with nothing persisted, on a loopback port and
// a Unix socket of its own, and returns once it answers PING, within 10 s. Any failure ends the
// test. Cleanup kills the server, paused or not, and removes its files.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redistest: redis-server is not in PATH: install the Debian package redis-server")
	}
	s := &Server{t: t, binary: binary, settings: settings{pickPort: randomPort}}
	for _, opt := range opts {
		opt(&s.settings)
	}
	if s.dir, err = shortTempDir(); err != nil {
		t.Fatalf("redistest: start: %v", err)
	}
	s.socket = filepath.Join(s.dir, "s")
	if s.settings.ownClock {
		if s.clock, err = buildClock(s.dir); err != nil {
			t.Fatalf("redistest: start: %v", err)
		}
	}
	t.Cleanup(func() {
		s.Kill()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("redistest: clean up: %v", err)
		}
	})
	if err := s.launchAnywhere(); err != nil {
		t.Fatalf("redistest: start: %v; its last output:\n%s", err, s.Log())
	}
	return s
}

// launchAnywhere tries ports until one is free.
func (s *Server) launchAnywhere() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range portTries {
		s.port = s.settings.pickPort()
		if err = s.launchLocked(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return err
}

// shortTempDir makes a directory in which a socket's path is short enough.
func shortTempDir() (string, error) {
	parent := ""
	if len(os.TempDir()) > maxSocketPath/2 {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "redistest")
}

// Addr is the TCP address, "127.0.0.1:port"; with TLS the port that speaks TLS. It stays the same
// over a Restart.
func (s *Server) Addr() string { return loopback(s.port) }

// Socket is the path of the Unix socket, under 100 bytes long.
func (s *Server) Socket() string { return s.socket }

// Pid is the process's id, 0 when the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.running() {
		return 0
	}
	return s.process.pid()
}

// Log is the last output of the server since it was last started, at most 40 lines, for the
// messages of tests that fail.
func (s *Server) Log() string { return s.output.String() }

// Kill kills the server with SIGKILL and returns when it is gone. Without effect when it does not
// run.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
	s.dropControl()
}

// Stop ends the server with SIGTERM, as an operator would, and returns when it is gone. A paused
// server is resumed first. Without effect when it does not run.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked()
}

func (s *Server) stopLocked() {
	if err := s.process.stop(); err != nil {
		s.t.Errorf("redistest: stop: %v; its last output:\n%s", err, s.Log())
	}
	s.dropControl()
}

// Restart stops the server if it runs, starts it with the same settings on the same port and
// socket, and returns when it answers PING. It comes back empty, without the scripts and settings
// that it was sent.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked()
	if err := s.launchLocked(); err != nil {
		s.t.Errorf("redistest: restart: %v; its last output:\n%s", err, s.Log())
	}
}

// Pause freezes the server with SIGSTOP and returns when it stands still: connections stay open
// and the kernel accepts new ones, but nothing is answered.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.pause(); err != nil {
		s.t.Errorf("redistest: pause: %v", err)
	}
}

// Resume lets a paused server go on with SIGCONT: it then executes all that was sent meanwhile.
// Without effect when it is not paused.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.resume(); err != nil {
		s.t.Errorf("redistest: resume: %v", err)
	}
}

// Do sends one command and returns its reply, typed as [Conn] says: an error reply is returned as
// a [ReplyError]. It ends the test t when no reply comes within 10 s, so it must be called from
// t's goroutine. Do uses one connection of its own, over the Unix socket and as an ACL user of its
// own, whatever password or TLS other clients need; INFO and CLIENT LIST count it, and its AUTH.
func (s *Server) Do(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.do(args)
	if err != nil {
		t.Fatalf("redistest: %s: %v; the server's last output:\n%s", strings.Join(args, " "), err, s.Log())
	}
	return reply
}

func (s *Server) do(args []string) (any, error) {
	s.controlMu.Lock()
	defer s.controlMu.Unlock()
	if s.control == nil {
		control, err := dialControl(s.socket)
		if err != nil {
			return nil, err
		}
		s.control = control
	}
	if err := s.control.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	reply, err := s.control.Do(args...)
	if err != nil {
		// The reply may still come: no later command may take it for its own.
		s.closeControlLocked()
	}
	return reply, err
}

// dialControl connects and logs in as controlUser.
func dialControl(socket string) (*Conn, error) {
	c, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(patience))
	if err == nil {
		var reply any
		if reply, err = c.Do("AUTH", controlUser, "any"); err == nil && reply != "OK" {
			err = fmt.Errorf("redistest: log in: %v", reply)
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (s *Server) dropControl() {
	s.controlMu.Lock()
	defer s.controlMu.Unlock()
	s.closeControlLocked()
}

func (s *Server) closeControlLocked() {
	if s.control != nil {
		_ = s.control.Close()
		s.control = nil
	}
}

// Calls is how often the server has executed command since its start or the last CONFIG RESETSTAT:
// "evalsha", or "config|set" for a subcommand. What was refused unexecuted does not count (NOAUTH,
// NOPERM, OOM, wrong number of arguments); what a script calls does.
func (s *Server) Calls(t testing.TB, command string) int64 {
	t.Helper()
	return s.commandStat(t, command, "calls")
}

// CallTime is the processor time that the calls counted by [Server.Calls] took, in whole
// microseconds.
func (s *Server) CallTime(t testing.TB, command string) time.Duration {
	t.Helper()
	return time.Duration(s.commandStat(t, command, "usec")) * time.Microsecond
}

// commandStat reads a field of "cmdstat_get:calls=2,usec=5,usec_per_call=2.50,…"; 0 when the
// command was never called.
func (s *Server) commandStat(t testing.TB, command, field string) int64 {
	t.Helper()
	info, ok := s.Do(t, "INFO", "commandstats").(string)
	if !ok {
		t.Fatal("redistest: INFO commandstats: not a string")
	}
	for line := range strings.Lines(info) {
		stats, found := strings.CutPrefix(line, "cmdstat_"+strings.ToLower(command)+":")
		if !found {
			continue
		}
		for pair := range strings.SplitSeq(strings.TrimSpace(stats), ",") {
			if text, found := strings.CutPrefix(pair, field+"="); found {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					t.Fatalf("redistest: INFO commandstats: %v", err)
				}
				return n
			}
		}
	}
	return 0
}
