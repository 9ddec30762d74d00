package process_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/bench/internal/process"
)

// TestStart runs a program that says when it is ready, and one that ends instead.
func TestStart(t *testing.T) {
	ready := func(line string) (string, bool) { return strings.CutPrefix(line, "ready ") }
	p, what, err := process.Start(ready, "sh", "-c", "echo begins; echo ready here >&2; exec sleep 60")
	if err != nil || what != "here" {
		t.Fatalf("got %q, %v", what, err)
	}
	now, peak, err := p.Memory()
	if err != nil || now <= 0 || peak < now {
		t.Errorf("memory %d, at most %d, %v", now, peak, err)
	}
	if cpu, err := p.CPU(); err != nil || cpu > 10*time.Second {
		t.Errorf("a sleeper used %v of the processor, %v", cpu, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if _, _, err := process.Start(ready, "sh", "-c", "echo no way; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "exit status 3: no way") {
		t.Errorf("got %v, want the exit status and the last words", err)
	}
}

// TestRedis empties a private Redis and asks how far away it is.
func TestRedis(t *testing.T) {
	r, err := process.StartRedis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.Flush(); err != nil {
		t.Error(err)
	}
	for calls := range int64(3) {
		if got, err := r.ScriptCalls(); err != nil || got != calls {
			t.Errorf("Redis ran %d scripts, %v, want %d", got, err, calls)
		}
		runScript(t, r.Socket)
	}
	if far, err := process.RoundTrip(r.Address); err != nil || far <= 0 || far > time.Second {
		t.Errorf("Redis is %v away, %v", far, err)
	}
}

// runScript has Redis run a script that does nothing, and waits until it has.
func runScript(t *testing.T, socket string) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("EVAL \"return 7\" 0\r\n")); err != nil {
		t.Fatal(err)
	}
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || reply != ":7\r\n" {
		t.Fatalf("the script returned %q, %v", reply, err)
	}
}
