package remote

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// TestOrdersTakeTime: what a call says of leases is part of what keeps Redis busy. A call of one question and many
// orders does not make charges look slow, and the next calls small.
func TestOrdersTakeTime(t *testing.T) {
	server := redistest.Start(t)
	s, err := New(Config{
		Addr: server.Addr(), Timeout: 5 * time.Second, KeyPrefix: "rl",
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	const orders = 200
	c := limit.Charge{Limit: leasedLimits(t, limit.HashState)[0], Key: "rl:{u1}", Cost: 1}
	c.Settings = &c.Limit.Settings
	ask := func(orders int) time.Duration {
		requests := []limit.Request{{Charges: []limit.Charge{c}}}
		for range orders {
			requests = append(requests, limit.Request{Orders: []limit.LeaseOrder{orderOf(c, 1)}})
		}
		decisions := make([]*limit.Decision, len(requests))
		for i := range decisions {
			decisions[i] = new(limit.Decision)
		}
		begin := time.Now()
		s.Decide(t.Context(), requests, decisions)
		if err := decisions[0].Err; err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	ask(0) // Redis knows the script from now on
	s.queue.pace.charge = 0
	took := ask(orders)
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if charge := s.queue.pace.charge; charge == 0 || charge > took/10 {
		t.Errorf("a charge takes %v by a call of %v with %d orders", charge, took, orders)
	}
}
