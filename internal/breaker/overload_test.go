package breaker_test

import (
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
// stay far below half of the wait less the delay.
func TestOverloadIsNoFailure(t *testing.T) {
	const (
		wait    = 2 * time.Second
		delay   = 200 * time.Millisecond
		callers = 500 // with 32 connections they wait for 3.1s
	)
	server := redistest.Start(t, redistest.WithUsers("default on >right ~* &* +@all"))
	proxy := redistest.NewProxy(t, server.Addr())
	r := newRigWithin(t, proxy.Addr(), wait)
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
	ask()                                   // which connects
	flood(64, func() bool { return false }) // all connections
	proxy.SetDelay(delay)
	end := time.Now().Add(wait * 3 / 2)
	flood(callers, func() bool { return time.Now().Before(end) && r.State() == "closed" })
	if degraded.Load() == 0 || shared.Load() <= 65 {
		t.Fatalf("%d answers without Redis, %d by it: this is no overload", degraded.Load(), shared.Load())
	}
	if got := r.State(); got != "closed" {
		t.Errorf("the breaker is %s after %d answers by Redis: %v", got, shared.Load(), r.errors(t))
	}
}
