package redistest_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestServerAnswers(t *testing.T) {
	server := redistest.Start(t)
	tests := []struct {
		want    any
		command []string
	}{
		{"OK", []string{"SET", "k", "a\r\nb"}},
		{"a\r\nb", []string{"GET", "k"}},
		{nil, []string{"GET", "none"}},
		{int64(-1), []string{"PTTL", "k"}},
		{int64(2), []string{"HSET", "h", "f", "1", "g", "2"}},
		{[]any{"f", "1", "g", "2"}, []string{"HGETALL", "h"}},
		{[]any{"save", ""}, []string{"CONFIG", "GET", "save"}},
		{[]any{"appendonly", "no"}, []string{"CONFIG", "GET", "appendonly"}},
		{"OK", []string{"SCRIPT", "FLUSH"}},
		{redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value"), []string{"INCR", "h"}},
	}
	for _, tt := range tests {
		if got := server.Do(t, tt.command...); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: got %#v, want %#v", tt.command, got, tt.want)
		}
	}
	for _, addr := range []string{server.Addr(), server.Socket()} {
		expect(t, dial(t, addr), "a\r\nb", "GET", "k")
	}
	if n := len(server.Socket()); n >= 100 {
		t.Errorf("socket path of %d bytes", n)
	}
	if want := "Ready to accept connections"; !strings.Contains(server.Log(), want) {
		t.Errorf("log without %q:\n%s", want, server.Log())
	}
}

func TestServersArePrivate(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	a.Do(t, "SET", "k", "a")
	if got := b.Do(t, "GET", "k"); got != nil {
		t.Errorf("got %v from another test's server", got)
	}
	if a.Addr() == b.Addr() || a.Socket() == b.Socket() || a.Pid() == b.Pid() {
		t.Errorf("shared: %s %s, %s %s", a.Addr(), b.Addr(), a.Socket(), b.Socket())
	}
}

func TestRestart(t *testing.T) {
	for name, down := range map[string]func(*redistest.Server){
		"after Kill":    (*redistest.Server).Kill,
		"after Stop":    (*redistest.Server).Stop,
		"while running": func(*redistest.Server) {},
		"while paused":  (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, redistest.WithPassword("secret"))
			addr, socket, pid := server.Addr(), server.Socket(), server.Pid()
			server.Do(t, "SET", "k", "v")
			down(server)
			server.Restart()
			if server.Addr() != addr || server.Socket() != socket {
				t.Errorf("moved from %s, %s to %s, %s", addr, socket, server.Addr(), server.Socket())
			}
			if alive(pid) || server.Pid() == pid {
				t.Errorf("the former process %d is still there", pid)
			}
			if got := server.Do(t, "GET", "k"); got != nil {
				t.Errorf("got %v, want nothing kept", got)
			}
			expect(t, dial(t, addr), "OK", "AUTH", "secret")
			expect(t, dial(t, socket), "OK", "AUTH", "secret")
		})
	}
}

func TestDown(t *testing.T) {
	for name, down := range map[string]func(*redistest.Server){
		"Kill": (*redistest.Server).Kill,
		"Stop": (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			pid := server.Pid()
			down(server)
			if alive(pid) || server.Pid() != 0 {
				t.Errorf("process %d is alive, Pid is %d", pid, server.Pid())
			}
			for _, addr := range []string{server.Addr(), server.Socket()} {
				if _, err := redistest.Dial(addr); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("dial %s: got %v, want it refused", addr, err)
				}
			}
			down(server) // without effect
		})
	}
}

func TestPause(t *testing.T) {
	server := redistest.Start(t)
	before := dial(t, server.Addr())
	expect(t, before, int64(1), "INCR", "k")
	server.Pause()
	after := dial(t, server.Addr())
	for _, conn := range []*redistest.Conn{before, after} {
		if err := conn.Send("INCR", "k"); err != nil {
			t.Fatal(err)
		}
		expectSilence(t, conn)
	}
	server.Resume()
	server.Resume() // without effect
	for _, conn := range []*redistest.Conn{before, after} {
		if _, err := conn.Receive(); err != nil {
			t.Error(err)
		}
	}
	if got := server.Do(t, "GET", "k"); got != "3" {
		t.Errorf("got %v, want 3: both were executed", got)
	}
}

func TestCleanup(t *testing.T) {
	for name, leave := range map[string]func(*redistest.Server){
		"running": func(*redistest.Server) {},
		"paused":  (*redistest.Server).Pause,
		"killed":  (*redistest.Server).Kill,
	} {
		var server *redistest.Server
		var pid int
		t.Run(name, func(t *testing.T) {
			server = redistest.Start(t)
			pid = server.Pid()
			leave(server)
		})
		if alive(pid) {
			t.Errorf("%s: process %d outlived its test", name, pid)
		}
		if _, err := os.Stat(filepath.Dir(server.Socket())); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: files are left: %v", name, err)
		}
	}
}

func TestWithArgs(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "10mb"), redistest.WithArgs("--maxclients", "17"))
	for _, tt := range []struct{ name, want string }{{"maxmemory", "10485760"}, {"maxclients", "17"}} {
		if got := server.Do(t, "CONFIG", "GET", tt.name); !reflect.DeepEqual(got, []any{tt.name, tt.want}) {
			t.Errorf("got %v, want %s", got, tt.want)
		}
	}
}

func TestWithPassword(t *testing.T) {
	const password = `se "cr\et`
	server := redistest.Start(t, redistest.WithPassword(password))
	conn := dial(t, server.Addr())
	expect(t, conn, redistest.ReplyError("NOAUTH Authentication required."), "GET", "k")
	expect(t, conn, "OK", "AUTH", password)
	expect(t, conn, nil, "GET", "k")
	if got := server.Do(t, "CONFIG", "SET", "requirepass", "changed"); got != "OK" {
		t.Fatal(got)
	}
	expect(t, dial(t, server.Addr()), "OK", "AUTH", "changed")
	server.Do(t, "ACL", "SETUSER", "default", "off")
	if got := server.Do(t, "PING"); got != "PONG" {
		t.Errorf("got %v with the default user off", got)
	}
}

func TestWithUsers(t *testing.T) {
	server := redistest.Start(t, redistest.WithUsers("alice on >secret ~rl:* +@all -eval", "default off"))
	conn := dial(t, server.Addr())
	expect(t, conn, "OK", "AUTH", "alice", "secret")
	expect(t, conn, "OK", "SET", "rl:k", "v")
	for _, command := range [][]string{{"SET", "other", "v"}, {"EVAL", "return 1", "0"}} {
		if got, err := conn.Do(command...); err != nil || !strings.HasPrefix(got.(redistest.ReplyError).Error(), "NOPERM") {
			t.Errorf("%v: got %v, %v, want NOPERM", command, got, err)
		}
	}
}

func TestWithTLS(t *testing.T) {
	certs, others := redistest.NewCertificates(t), redistest.NewCertificates(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	expect(t, dial(t, server.Socket()), "PONG", "PING")
	tests := []struct {
		name        string
		ca, client  *redistest.Certificates
		wantSuccess bool
	}{
		{"right", certs, certs, true},
		{"server of another CA", others, certs, false},
		{"client of another CA", certs, others, false},
	}
	for _, tt := range tests {
		got, err := pingTLS(t, server.Addr(), tt.ca, tt.client)
		if success := err == nil && got == "PONG"; success != tt.wantSuccess {
			t.Errorf("%s: got %v, %v", tt.name, got, err)
		}
	}
}

func pingTLS(t *testing.T, addr string, ca, client *redistest.Certificates) (any, error) {
	t.Helper()
	pem, err := os.ReadFile(ca.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(client.ClientCertFile, client.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &net.Dialer{Timeout: limit}
	raw, err := tls.DialWithDialer(dialer, "tcp", addr, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})
	if err != nil {
		return nil, err
	}
	conn := redistest.NewConn(raw)
	t.Cleanup(func() { _ = conn.Close() })
	within(t, conn, limit)
	return conn.Do("PING")
}

func TestCalls(t *testing.T) {
	server := redistest.Start(t)
	for range 3 {
		server.Do(t, "EVAL", "for i = 1, 20000 do end return redis.call('INCR', 'k')", "0")
	}
	server.Do(t, "EVAL", "too few arguments")
	server.Do(t, "CONFIG", "SET", "hz", "11")
	for command, want := range map[string]int64{"eval": 3, "EVAL": 3, "incr": 3, "config|set": 1, "get": 0, "ev": 0} {
		if got := server.Calls(t, command); got != want {
			t.Errorf("calls of %s: got %d, want %d", command, got, want)
		}
	}
	if got := server.CallTime(t, "eval"); got < 3*time.Microsecond || got > limit {
		t.Errorf("time of eval: got %v", got)
	}
	if got := server.CallTime(t, "get"); got != 0 {
		t.Errorf("time of get: got %v, want 0", got)
	}
}
