package redistest_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// proxied is a server behind a proxy, with one connection that has worked.
func proxied(t *testing.T) (*redistest.Server, *redistest.Proxy, *redistest.Conn) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	conn := dial(t, proxy.Addr())
	expect(t, conn, "PONG", "PING")
	return server, proxy, conn
}

func TestProxyPasses(t *testing.T) {
	server := redistest.Start(t)
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for _, target := range []string{server.Addr(), server.Socket()} {
		proxy := redistest.NewProxy(t, target)
		expect(t, dial(t, proxy.Addr()), "OK", "SET", "k", large)
		conn := dial(t, proxy.Addr())
		expect(t, conn, large, "GET", "k")
		if got := proxy.Connections(); got != 2 {
			t.Errorf("got %d connections, want 2", got)
		}
		// The end of the stream passes both ways.
		expect(t, conn, "OK", "QUIT")
		if _, err := conn.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after QUIT: got %v, want EOF", err)
		}
	}
}

func TestProxyPassesTheEndOfClients(t *testing.T) {
	server, proxy, conn := proxied(t)
	name := "proxied"
	expect(t, conn, "OK", "CLIENT", "SETNAME", name)
	expect(t, dial(t, proxy.Addr()), "PONG", "PING")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	awaitClientGone(t, server, name)
}

func TestProxyTargetRefuses(t *testing.T) {
	server, proxy, conn := proxied(t)
	server.Kill()
	if got, err := conn.Receive(); err == nil {
		t.Errorf("existing: got %v, want the end of the connection", got)
	}
	added, err := redistest.Dial(proxy.Addr())
	if err == nil {
		_, err = added.Receive()
		_ = added.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("new: got %v, want a reset", err)
	}
	server.Restart()
	expect(t, dial(t, proxy.Addr()), "PONG", "PING")
}

func TestSetDelay(t *testing.T) {
	_, proxy, existing := proxied(t)
	const delay = 100 * time.Millisecond
	proxy.SetDelay(delay)
	for _, conn := range []*redistest.Conn{existing, dial(t, proxy.Addr())} {
		start := time.Now()
		expect(t, conn, "PONG", "PING")
		if got := time.Since(start); got < delay {
			t.Errorf("a reply after %v, want %v or more", got, delay)
		}
	}
	proxy.SetDelay(0)
	start := time.Now()
	for range 50 {
		expect(t, existing, "PONG", "PING")
	}
	if got := time.Since(start); got > 50*delay/2 {
		t.Errorf("50 replies after %v without a delay", got)
	}
}

// TestSetDelayKeepsThroughput pipelines requests over several delays: a proxy that waits for one
// reply before it takes up the next would make half of them 1.5 delays late or more.
func TestSetDelayKeepsThroughput(t *testing.T) {
	_, proxy, conn := proxied(t)
	const delay, count = 200 * time.Millisecond, 300
	proxy.SetDelay(delay)
	sent := make(chan time.Time, count)
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() {
		for range count {
			sent <- time.Now()
			if err := conn.Send("INCR", "k"); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	var waits []time.Duration
	for i := range count {
		expectReply(t, conn, int64(i+1))
		waits = append(waits, time.Since(<-sent))
	}
	slices.Sort(waits)
	if waits[0] < delay || waits[count/2] > delay*5/4 {
		t.Errorf("replies after %v at least, %v in the median, want %v", waits[0], waits[count/2], delay)
	}
}

func TestDropReplies(t *testing.T) {
	server, proxy, existing := proxied(t)
	proxy.DropReplies(true)
	added := dial(t, proxy.Addr())
	for _, conn := range []*redistest.Conn{existing, added} {
		send(t, conn, "INCR", "k")
	}
	await(t, server, "k", "2") // both were executed
	expectSilence(t, existing)
	expectSilence(t, added)
	proxy.DropReplies(false)
	send(t, existing, "INCR", "k")
	await(t, server, "k", "3")
	expectSilence(t, existing) // no reply after a gap
	expect(t, dial(t, proxy.Addr()), "3", "GET", "k")
}

func TestBlackHole(t *testing.T) {
	server, proxy, existing := proxied(t)
	waiting := dial(t, proxy.Addr()) // the server has its request when the hole opens
	send(t, waiting, "BRPOPLPUSH", "list", "popped", "0")
	awaitInfo(t, server, "blocked_clients:1")
	proxy.BlackHole(true)
	server.Do(t, "RPUSH", "list", "v")
	added := dial(t, proxy.Addr())
	for _, conn := range []*redistest.Conn{existing, added} {
		send(t, conn, "INCR", "k")
		expectSilence(t, conn)
	}
	if got := server.Do(t, "LLEN", "popped"); got != int64(1) {
		t.Errorf("got %v, want the waiting command executed", got)
	}
	expectSilence(t, waiting) // no reply passes either
	if got := server.Do(t, "GET", "k"); got != nil {
		t.Errorf("got %v, want nothing to have reached the server", got)
	}
	if got := proxy.Connections(); got != 3 {
		t.Errorf("got %d connections, want 3", got)
	}
	proxy.BlackHole(false)
	expectReply(t, waiting, "v")
	for _, conn := range []*redistest.Conn{existing, added} {
		if _, err := conn.Receive(); err != nil {
			t.Error(err)
		}
	}
	await(t, server, "k", "2")
}

func TestBlackHoleHoldsTheEndOfClients(t *testing.T) {
	server, proxy, conn := proxied(t)
	expect(t, conn, "OK", "CLIENT", "SETNAME", "held")
	proxy.BlackHole(true)
	send(t, conn, "INCR", "k")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(silence)
	if list := server.Do(t, "CLIENT", "LIST").(string); !strings.Contains(list, "name=held") {
		t.Errorf("the end of the connection passed:\n%s", list)
	}
	proxy.BlackHole(false)
	await(t, server, "k", "1") // given up by its client, and executed
	awaitClientGone(t, server, "held")
}

// TestFaultsTogether sets every fault from several goroutines while clients come and go: for the
// race detector, and to see that all goroutines end.
func TestFaultsTogether(t *testing.T) {
	t.Run("proxy", func(t *testing.T) {
		_, proxy, _ := proxied(t)
		faults := []func(on bool){
			proxy.DropReplies, proxy.BlackHole, proxy.Refuse,
			func(bool) { proxy.ResetAll() },
			func(on bool) { proxy.CutReplyAfter(map[bool]int{true: 3, false: -1}[on]) },
			func(on bool) { proxy.SetDelay(map[bool]time.Duration{true: time.Millisecond}[on]) },
		}
		var all sync.WaitGroup
		for _, set := range faults {
			all.Go(func() {
				for i := range 21 { // the last one lifts the fault
					set(i%2 == 1)
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 4 {
			all.Go(func() { pester(proxy.Addr()) })
		}
		all.Wait()
		expect(t, dial(t, proxy.Addr()), "PONG", "PING")
		proxy.BlackHole(true) // left on for Cleanup
		send(t, dial(t, proxy.Addr()), "PING")
	})
	expectNoGoroutines(t)
}

// pester sends commands over new connections, whatever comes of it.
func pester(addr string) {
	for range 30 {
		conn, err := redistest.Dial(addr)
		if err != nil {
			continue // refused for now
		}
		if err := conn.SetDeadline(time.Now().Add(5 * time.Millisecond)); err == nil {
			_, _ = conn.Do("PING")
		}
		_ = conn.Close()
	}
}
