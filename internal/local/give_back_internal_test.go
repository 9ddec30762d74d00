package local

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
)

// lender notes when it is told of leases.
type lender struct{ told chan time.Time }

func (l lender) Decide(context.Context, []limit.Request, []*limit.Decision) { l.told <- time.Now() }

// TestShortLeaseIsGivenBackInTime: also when it was lent after one that ends later, on whose end Run waits.
func TestShortLeaseIsGivenBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLeases(LeasesConfig{Timeout: time.Second, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		store := lender{make(chan time.Time, 2)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx, store) }()
		window := &limit.Limit{Settings: limit.Settings{Algorithm: limit.FixedWindowAlgorithm, Hold: 1_000_000}}
		start := time.Now()
		for i, usable := range []time.Duration{time.Second, 100 * time.Millisecond} {
			c := limit.Charge{Limit: window, Settings: &window.Settings, Cost: 1, Hash: limit.Hash{0, uint64(i)}}
			l.Order(start, &c, nil)
			o := limit.LeaseOrder{Limit: window, Settings: &window.Settings, Hash: c.Hash, Want: 1}
			l.Receive(start, time.Now(), &o, limit.Lease{Tokens: 1, Usable: usable})
			synctest.Wait()
		}
		for _, usable := range []time.Duration{100 * time.Millisecond, time.Second} {
			if late := (<-store.told).Sub(start) - usable; late < 0 || late > giveBackEvery {
				t.Errorf("the lease of %v was given back %v after its end", usable, late)
			}
		}
		cancel()
		<-ended
	})
}

// TestTellNeverWaits: also when Run has woken by its timer, and is about to look again, before it has seen what it
// was told. Who tells holds a shard that Run needs then.
func TestTellNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails when nothing can go on
		l, err := NewLeases(LeasesConfig{Timeout: time.Second, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l.next.Store(neverLooks)
			l.tell(time.Now())
		}
		if len(l.told) != 1 {
			t.Error("Run was told nothing")
		}
	})
}
