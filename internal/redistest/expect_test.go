package redistest_test

import (
	"errors"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// silence is how long a test waits to see that nothing comes.
const silence = 50 * time.Millisecond

// limit bounds what a test waits for; reaching it is a failure.
const limit = 10 * time.Second

// dial connects for one test, with limit as the deadline.
func dial(t *testing.T, addr string) *redistest.Conn {
	t.Helper()
	conn, err := redistest.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	within(t, conn, limit)
	return conn
}

func within(t *testing.T, conn *redistest.Conn, d time.Duration) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

// expect sends a command and compares its reply.
func expect(t *testing.T, conn *redistest.Conn, want any, command ...string) {
	t.Helper()
	got, err := conn.Do(command...)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got %#v, %v, want %#v", command, got, err, want)
	}
}

// expectSilence waits a while for a reply that must not come, then allows limit again.
func expectSilence(t *testing.T, conn *redistest.Conn) {
	t.Helper()
	within(t, conn, silence)
	if got, err := conn.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %#v, %v, want no reply", got, err)
	}
	within(t, conn, limit)
}

func expectReply(t *testing.T, conn *redistest.Conn, want any) {
	t.Helper()
	got, err := conn.Receive()
	if err != nil || got != want {
		t.Errorf("got %#v, %v, want %#v", got, err, want)
	}
}

func expectReset(t *testing.T, conn *redistest.Conn) {
	t.Helper()
	if got, err := conn.Receive(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %#v, %v, want a reset", got, err)
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// dialRaw connects without RESP, with limit as the deadline.
func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn *redistest.Conn, command ...string) {
	t.Helper()
	if err := conn.Send(command...); err != nil {
		t.Fatal(err)
	}
}

// await polls the server until key holds want.
func await(t *testing.T, server *redistest.Server, key string, want any) {
	t.Helper()
	var got any
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got = server.Do(t, "GET", key); got == want {
			return
		}
	}
	t.Fatalf("%s: got %v, want %v", key, got, want)
}

// awaitClientGone polls until the server has no connection of that name.
func awaitClientGone(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		list := server.Do(t, "CLIENT", "LIST").(string)
		if !strings.Contains(list, "name="+name) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server still has the client:\n%s", list)
		}
	}
}

// awaitInfo polls until a line of INFO is there.
func awaitInfo(t *testing.T, server *redistest.Server, line string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		info := server.Do(t, "INFO").(string)
		if strings.Contains(info, line+"\r\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("INFO without %s:\n%s", line, info)
		}
	}
}

// expectNoGoroutines looks for goroutines that the package has left behind.
func expectNoGoroutines(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "/redistest.") && !strings.Contains(stack, "redistest_test.Test") {
			t.Errorf("left behind:\n%s", stack)
		}
	}
}
