package breaker_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// TestOverloadIsNoFailure: more callers than a slow Redis has time for are answered by policy, but a
// Redis that answers all the time is not cut off for it.
func TestOverloadIsNoFailure(t *testing.T) {
	server := redistest.Start(t, redistest.WithUsers("default on >right ~* &* +@all"))
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.SetDelay(30 * time.Millisecond)
	r := newRig(t, proxy.Addr())
	r.ask(t.Context(), t) // which connects
	end := time.Now().Add(1500 * time.Millisecond)
	var mu sync.Mutex
	degraded, shared := 0, 0
	var group sync.WaitGroup
	for range 300 {
		group.Go(func() {
			for time.Now().Before(end) {
				open, _ := r.ask(t.Context(), t)
				mu.Lock()
				if open.Degraded {
					degraded++
				} else {
					shared++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if degraded == 0 || shared == 0 {
		t.Fatalf("%d answers without Redis, %d by it: this is no overload", degraded, shared)
	}
	if got := r.State(); got != "closed" {
		t.Errorf("the breaker is %s after %d answers by Redis: %v", got, shared, r.errors(t))
	}
}
