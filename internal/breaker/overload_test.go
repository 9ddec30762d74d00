package breaker_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// TestOverloadIsNoFailure: more callers than a slow Redis has time for are answered by policy, but a
// Redis that answers all the time is not cut off for it.
//
// A call counts as a failure when it was sent with at least half of its time left and got no answer. So
// the times are long: what this process is late by, because the machine is busy with other tests, must
// stay far below half of the wait less what a call takes.
func TestOverloadIsNoFailure(t *testing.T) {
	const (
		wait    = 2 * time.Second
		busy    = 100 * time.Millisecond
		callers = 2000 // a call carries 64 of them, so that they wait for 3s
	)
	r := newRigWithin(t, slowRedis(t, busy), wait)
	var degraded, shared atomic.Int64
	ask := func() {
		if open, _ := r.ask(t.Context(), t); open.Degraded {
			degraded.Add(1)
		} else {
			shared.Add(1)
		}
	}
	flood := func(n int, again func() bool) {
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				for ask(); again(); {
					ask()
				}
			})
		}
		group.Wait()
	}
	ask() // which connects
	end := time.Now().Add(wait * 3 / 2)
	flood(callers, func() bool { return time.Now().Before(end) && r.State() == "closed" })
	if degraded.Load() == 0 || shared.Load() <= 1 {
		t.Fatalf("%d answers without Redis, %d by it: this is no overload", degraded.Load(), shared.Load())
	}
	if got := r.State(); got != "closed" {
		t.Errorf("the breaker is %s after %d answers by Redis: %v", got, shared.Load(), r.errors(t))
	}
}

// slowRedis is a Redis of which each call of a script takes so long, one after the other.
func slowRedis(t *testing.T, busy time.Duration) (addr string) {
	server := redistest.Start(t)
	behind, err := redistest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Close() })
	var mu sync.Mutex // guards behind
	return redistest.NewStub(t, func(command []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch strings.ToUpper(command[0]) {
		case "HELLO":
			return "*2\r\n" + redistest.Bulk("version") + redistest.Bulk("7.0.0")
		case "TIME":
			now := time.Now()
			return "*2\r\n" + redistest.Bulk(fmt.Sprint(now.Unix())) + redistest.Bulk("0")
		case "AUTH", "SCRIPT", "SELECT":
			return "+OK\r\n"
		case "EVALSHA":
			time.Sleep(busy)
		}
		reply, err := behind.Do(command...)
		if err != nil {
			return fmt.Sprintf("-ERR %v\r\n", err)
		}
		if failed, ok := reply.(redistest.ReplyError); ok {
			return "-" + string(failed) + "\r\n"
		}
		return redistest.Bulk(fmt.Sprint(reply))
	}).Addr()
}
