package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStartTriesAnotherPort(t *testing.T) {
	taken, addr, err := listenAnywhere()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	takenPort := taken.Addr().(*net.TCPAddr).Port
	picks := 0
	server := Start(t, func(s *settings) {
		s.pickPort = func() int {
			picks++
			if picks <= 2 {
				return takenPort
			}
			return randomPort()
		}
	})
	if picks < 3 || server.Addr() == addr {
		t.Errorf("got %s after %d picks, want a port other than %s", server.Addr(), picks, addr)
	}
	if got := server.Do(t, "PING"); got != "PONG" {
		t.Errorf("got %v", got)
	}
}

// recorder is the testing.TB of a test that is expected to fail.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatal(args ...any) {
	r.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

// fatal runs f, which is expected to end its test, and returns the message.
func fatal(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.fatal
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	got := fatal(t, func(t testing.TB) { Start(t, WithArgs("--no-such-setting", "1")) })
	for _, want := range []string{"exit status 1", "no-such-setting"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	got = fatal(t, func(t testing.TB) { Start(t) })
	if want := "redistest: redis-server is not in PATH: install the Debian package redis-server"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDoSaysWhatIsWrong(t *testing.T) {
	server := Start(t)
	server.Kill()
	got := fatal(t, func(t testing.TB) { server.Do(t, "PING") })
	for _, want := range []string{"PING", "connection refused", "Ready to accept connections"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestDoDialsAgainAfterAFailure(t *testing.T) {
	server := Start(t)
	conn, err := Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if killed, err := conn.Do("CLIENT", "KILL", "TYPE", "normal"); killed != int64(1) {
		t.Fatalf("got %v, %v, want the connection of Do killed", killed, err)
	}
	if got := fatal(t, func(t testing.TB) { server.Do(t, "PING") }); got == "" {
		t.Error("no failure over a connection that was killed")
	}
	if got := server.Do(t, "PING"); got != "PONG" {
		t.Errorf("got %v", got)
	}
}

func TestSocketPathIsShort(t *testing.T) {
	deep := t.TempDir() + "/" + strings.Repeat("d", 80)
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	server := Start(t)
	if got := len(server.Socket()); got >= maxSocketPath {
		t.Errorf("got a path of %d bytes: %s", got, server.Socket())
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	var out tail
	for i := range 5000 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != tailLines || lines[0] != "line 4960" || lines[tailLines-1] != "line 4999" {
		t.Errorf("got %d lines, %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	if len(out.text) > tailBytes {
		t.Errorf("keeps %d bytes", len(out.text))
	}
}

// TestServerDiesWithTestBinary runs this test again in a process that is killed before its Cleanup.
func TestServerDiesWithTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel of this system has no parent-death signal")
	}
	const role = "REDISTEST_ABANDON"
	if os.Getenv(role) != "" {
		server := Start(t)
		server.Pause()
		fmt.Println(server.Pid())
		select {} // until killed
	}
	child := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTestBinary$")
	child.Env = append(os.Environ(), role+"=1", "TMPDIR="+t.TempDir())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, scanErr := fmt.Fscan(out, &pid)
	_ = child.Process.Kill()
	_ = child.Wait()
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	for deadline := time.Now().Add(patience); syscall.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(pollPace) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("redis-server %d outlived its test binary", pid)
		}
	}
}

// zombie tells whether pid is dead and waits for an init process that may be slow to reap.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
