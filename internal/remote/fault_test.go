package remote_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// TestSlowRedisIsReached pins that a Redis that answers within the timeout is reached, though a
// new connection, with its several round trips, takes longer than that: by requests alone, and by
// heartbeats alone.
func TestSlowRedisIsReached(t *testing.T) {
	const timeout, delay = 200 * time.Millisecond, 80 * time.Millisecond
	slow := func(t *testing.T) *bench {
		proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
		proxy.SetDelay(delay)
		return newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: timeout})
	}
	eventually := func(t *testing.T, met func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !met(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("Redis is never reached")
			}
		}
	}
	t.Run("requests", func(t *testing.T) {
		b := slow(t)
		c := charge(hourly("slow", 50, limit.HashState), "a", 1)
		eventually(t, func() bool {
			d, err := b.ask(timeout, c)
			return err == nil && d.Err == nil && d.Allowed
		})
	})
	t.Run("heartbeats", func(t *testing.T) {
		b := slow(t)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = b.store.Run(ctx, noLimits) })
		eventually(t, func() bool { return b.store.Reachable() == nil })
		cancel()
		group.Wait()
	})
}

// TestSlowHeartbeatFails pins that a heartbeat, as the breaker's probe, fails where requests would.
func TestSlowHeartbeatFails(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.SetDelay(150 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gate := &gate{told: func(error) { cancel() }}
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 100 * time.Millisecond, Gate: gate})
	_ = b.store.Run(ctx, noLimits)
	if ends := gate.all(); len(ends) != 1 || !errors.Is(ends[0], limit.ErrUnavailable) {
		t.Errorf("a heartbeat of a Redis that is too slow: %v", ends)
	}
}

// TestInDoubt pins what counts as in doubt: a charging call that was sent and got no reply.
func TestInDoubt(t *testing.T) {
	server := redistest.Start(t)
	tests := []struct {
		name  string
		fault func(*redistest.Proxy)
		cost  int64
		want  float64
	}{
		{"reply lost", func(p *redistest.Proxy) { p.DropReplies(true) }, 1, 1},
		{"black hole", func(p *redistest.Proxy) { p.BlackHole(true) }, 1, 1},
		{"reset in mid-reply", func(p *redistest.Proxy) { p.CutReplyAfter(3) }, 1, 1},
		{"reset instead of a reply", func(p *redistest.Proxy) { p.CutReplyAfter(0) }, 1, 1},
		{"reply lost, but a peek", func(p *redistest.Proxy) { p.DropReplies(true) }, 0, 0},
		{"refused", func(p *redistest.Proxy) { p.Refuse(true) }, 1, 0},
		{"no connection gets ready", func(p *redistest.Proxy) { p.ResetAll(); p.BlackHole(true) }, 1, 0},
		{"the handshake is cut", func(p *redistest.Proxy) { p.ResetAll(); p.CutReplyAfter(3) }, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr())
			b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 200 * time.Millisecond})
			l := hourly("doubt", 50, limit.HashState)
			b.mustAsk(charge(l, tt.name, 1))
			tt.fault(proxy)
			if _, err := b.ask(200*time.Millisecond, charge(l, tt.name, tt.cost)); !errors.Is(err, limit.ErrUnavailable) {
				t.Errorf("error %v, want ErrUnavailable", err)
			}
			if got := b.counter("tidegate_ambiguous_total"); got != tt.want {
				t.Errorf("ambiguous_total is %v, want %v", got, tt.want)
			}
		})
	}
}

// TestGivenUpBeforeItIsSent pins that a call that was given up while it waited for a connection is
// not sent when the connection is there, which the next call finds.
func TestGivenUpBeforeItIsSent(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 5 * time.Second})
	l := hourly("withdrawn", 50, limit.HashState)
	b.mustAsk(charge(l, "a", 1))
	proxy.ResetAll()
	proxy.BlackHole(true)
	for range 2 { // the first finds the connection dead that was ready, and takes what it begins along
		if _, err := b.ask(20*time.Millisecond, charge(l, "a", 1)); !errors.Is(err, limit.ErrUnavailable) {
			t.Fatalf("in a black hole: %v", err)
		}
	}
	calls, pings := server.Calls(t, "evalsha"), server.Calls(t, "ping")
	proxy.BlackHole(false)
	for deadline := time.Now().Add(10 * time.Second); server.Calls(t, "ping") == pings; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is never ready")
		}
	}
	if got := server.Calls(t, "evalsha"); got != calls {
		t.Errorf("the call was sent after it was given up")
	}
	connections := proxy.Connections()
	if d := b.mustAsk(charge(l, "a", 1)); d.Verdicts[0].Remaining != 48 {
		t.Errorf("%d are left, want 48", d.Verdicts[0].Remaining)
	}
	if got := proxy.Connections(); got != connections {
		t.Errorf("the next call made %d connections of its own", got-connections)
	}
	if got := b.counter("tidegate_ambiguous_total"); got != 0 {
		t.Errorf("ambiguous_total is %v, want 0", got)
	}
}

// TestWaitsEndInTime pins that many callers at once, more than there are connections, all leave
// when their wait ends, whatever Redis does.
func TestWaitsEndInTime(t *testing.T) {
	server := redistest.Start(t)
	for name, fault := range map[string]func(*redistest.Proxy){
		"black hole":            func(p *redistest.Proxy) { p.BlackHole(true) },
		"black hole, no idlers": func(p *redistest.Proxy) { p.ResetAll(); p.BlackHole(true) },
		"replies lost":          func(p *redistest.Proxy) { p.DropReplies(true) },
		"slow":                  func(p *redistest.Proxy) { p.SetDelay(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr())
			b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 50 * time.Millisecond})
			l := hourly("waits", 50, limit.HashState)
			b.mustAsk(charge(l, "a", 0))
			fault(proxy)
			var group sync.WaitGroup
			for range 200 {
				group.Go(func() {
					start := time.Now()
					_, err := b.ask(50*time.Millisecond, charge(l, "a", 1))
					if took := time.Since(start); !errors.Is(err, limit.ErrUnavailable) || took > time.Second {
						t.Errorf("got %v after %v", err, took)
					}
				})
			}
			group.Wait()
		})
	}
}

// TestAnswersBeforeAFailureHold pins that in a list that takes two calls, of which the second
// fails, the decisions of the first are valid, and told apart from the others.
func TestAnswersBeforeAFailureHold(t *testing.T) {
	server := redistest.Start(t)
	behind, err := redistest.Dial(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	var mu sync.Mutex // guards behind
	stub := redistest.NewStub(t, func(command []string) string {
		switch strings.ToUpper(command[0]) {
		case "HELLO":
			return "*2\r\n" + redistest.Bulk("version") + redistest.Bulk("7.0.0")
		case "TIME":
			return "*2\r\n" + redistest.Bulk("1780000000") + redistest.Bulk("0")
		case "EVALSHA":
			if arguments := command[len(command)-1]; len(arguments) > 100 && len(arguments) < 700 { // of 72 requests
				return "-OOM command not allowed\r\n"
			}
		}
		mu.Lock()
		defer mu.Unlock()
		reply, err := behind.Do(command...)
		if err != nil {
			return fmt.Sprintf("-ERR %v\r\n", err)
		}
		return redistest.Bulk(fmt.Sprint(reply))
	})
	b := newBench(t, remote.Config{Addr: stub.Addr()})
	l := hourly("halves", 500, limit.HashState)
	requests := make([]limit.Request, 200)
	decisions := make([]*limit.Decision, len(requests))
	for i := range requests {
		requests[i].Charges, decisions[i] = []limit.Charge{charge(l, "a", 1)}, new(limit.Decision)
	}
	b.store.Decide(t.Context(), requests, decisions)
	for i, d := range decisions {
		want := limit.TierRedis
		if i >= 128 {
			want = limit.TierNone
		}
		if d.Tier != want || errors.Is(d.Err, limit.ErrUnavailable) != (i >= 128) || len(d.Verdicts) != int(want/limit.TierRedis) {
			t.Fatalf("decision %d: %+v, want tier %v", i, d, want)
		}
	}
}

// TestExpiredIsNoAnswer pins that a request that Redis skipped as expired has no Tier when the next
// call, which asks again, fails.
func TestExpiredIsNoAnswer(t *testing.T) {
	var calls atomic.Int64
	stub := redistest.NewStub(t, func(command []string) string {
		switch strings.ToUpper(command[0]) {
		case "HELLO":
			return "*2\r\n" + redistest.Bulk("version") + redistest.Bulk("7.0.0")
		case "TIME":
			return "*2\r\n" + redistest.Bulk("1780000000") + redistest.Bulk("0")
		case "EVALSHA":
			if calls.Add(1) == 1 {
				return redistest.Bulk("\x92\xce\x00\x00\x00\x01\x02") // the array of a time and the code for expired
			}
			return "-OOM command not allowed\r\n"
		}
		return "+OK\r\n"
	})
	b := newBench(t, remote.Config{Addr: stub.Addr()})
	d, err := b.ask(5*time.Second, charge(hourly("expired", 5, limit.HashState), "a", 1))
	if !errors.Is(err, limit.ErrUnavailable) || d.Tier != limit.TierNone || calls.Load() != 2 {
		t.Errorf("got %+v, %v after %d calls, want an error, no tier, and 2", d, err, calls.Load())
	}
	if got := b.counter("tidegate_expired_calls_total"); got != 1 {
		t.Errorf("expired_calls_total is %v, want 1", got)
	}
}
