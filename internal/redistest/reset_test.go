package redistest_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestRefuse(t *testing.T) {
	server, proxy, existing := proxied(t)
	expect(t, existing, "OK", "CLIENT", "SETNAME", "refused")
	for range 2 { // twice: the port is there again each time
		proxy.Refuse(true)
		proxy.Refuse(true) // without effect
		expectReset(t, existing)
		awaitClientGone(t, server, "refused")
		if _, err := redistest.Dial(proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want a refused connection", err)
		}
		proxy.Refuse(false)
		proxy.Refuse(false) // without effect
		existing = dial(t, proxy.Addr())
		expect(t, existing, "OK", "CLIENT", "SETNAME", "refused")
	}
}

func TestResetAll(t *testing.T) {
	for name, fault := range map[string]func(*redistest.Proxy){
		"idle":         func(*redistest.Proxy) {},
		"black hole":   func(p *redistest.Proxy) { p.BlackHole(true) },
		"long delay":   func(p *redistest.Proxy) { p.SetDelay(time.Hour) },
		"lost replies": func(p *redistest.Proxy) { p.DropReplies(true) },
	} {
		t.Run(name, func(t *testing.T) {
			server, proxy, a := proxied(t)
			b := dial(t, proxy.Addr())
			expect(t, b, "OK", "CLIENT", "SETNAME", "reset")
			fault(proxy)
			if name != "idle" {
				send(t, a, "PING")
			}
			proxy.ResetAll()
			expectReset(t, a)
			expectReset(t, b)
			awaitClientGone(t, server, "reset")
			proxy.BlackHole(false)
			proxy.SetDelay(0)
			proxy.DropReplies(false)
			expect(t, dial(t, proxy.Addr()), "PONG", "PING")
		})
	}
}

func TestCutReplyAfter(t *testing.T) {
	const reply = "$26\r\nabcdefghijklmnopqrstuvwxyz\r\n"
	for _, n := range []int{0, 1, 10, len(reply) - 1, len(reply)} {
		server, proxy, bystander := proxied(t)
		server.Do(t, "SET", "k", "abcdefghijklmnopqrstuvwxyz")
		raw := dialRaw(t, proxy.Addr())
		proxy.CutReplyAfter(n)
		if _, err := io.WriteString(raw, "GET k\r\n"); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(raw)
		if string(got) != reply[:n] || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("cut after %d: got %q, %v, want %q and a reset", n, got, err, reply[:n])
		}
		if calls := server.Calls(t, "get"); calls != 1 {
			t.Errorf("cut after %d: executed %d times, want 1", n, calls)
		}
		// One shot: neither others nor new connections are cut.
		expect(t, bystander, "PONG", "PING")
		expect(t, dial(t, proxy.Addr()), "PONG", "PING")
	}
}

func TestCutReplyOverManyChunks(t *testing.T) {
	server, proxy, _ := proxied(t)
	const n = 300_000
	server.Do(t, "SET", "k", strings.Repeat("x", 2*n))
	raw := dialRaw(t, proxy.Addr())
	proxy.CutReplyAfter(n)
	if _, err := io.WriteString(raw, "GET k\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.Copy(io.Discard, raw)
	// A reset may overtake what is still in the sender's buffers, but adds nothing.
	if got > n || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %d bytes, %v, want %d and a reset", got, err, n)
	}
}

func TestCutReplyCalledOff(t *testing.T) {
	_, proxy, conn := proxied(t)
	proxy.CutReplyAfter(1)
	proxy.CutReplyAfter(-1)
	expect(t, conn, "PONG", "PING")
}
