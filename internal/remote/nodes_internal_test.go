package remote

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// TestNodesFallOnlyWhenThisOneIsSteady: a node that has just lost Redis itself does not conclude from
// missing heartbeats that the others are gone.
func TestNodesFallOnlyWhenThisOneIsSteady(t *testing.T) {
	server := redistest.Start(t)
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1000}, 10, 10)
	if err != nil {
		t.Fatal(err)
	}
	l := &limit.Limit{Name: "shared", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}}
	limits := []*limit.Limit{l}
	if _, err := limit.NewRules("rl", nil, limits, nil); err != nil {
		t.Fatal(err)
	}
	var nodes []*Store
	for range 3 {
		s, err := New(Config{
			Addr: server.Addr(), Timeout: 5 * time.Second, KeyPrefix: "rl",
			Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		nodes = append(nodes, s)
	}
	beat := func(s *Store) {
		t.Helper()
		if err := s.heartbeat(t.Context(), limits, nodeLife); err != nil {
			t.Fatal(err)
		}
	}
	want := func(why string, n int) {
		t.Helper()
		if got := nodes[0].Nodes(l); got != n {
			t.Errorf("%s: %d nodes, want %d", why, got, n)
		}
	}
	want("before any heartbeat", 0)
	for _, s := range append(nodes, nodes[0]) {
		beat(s)
	}
	want("all alive", 3)
	gone := func(s *Store) { server.Do(t, "ZREM", "rl:{~nodes}:"+l.ID(), s.node) }
	gone(nodes[1])
	beat(nodes[0])
	want("one is missing, and this one is not steady yet", 3)
	nodes[0].health.steady = time.Now().Add(-nodeLife)
	beat(nodes[0])
	want("one is missing only now", 3)
	later := func() { nodes[0].health.lower[l.ID()] = time.Now().Add(-2 * time.Second) }
	later()
	beat(nodes[0])
	want("one is missing, and this one is steady", 2)
	nodes[0].health.steady = time.Time{}
	gone(nodes[2])
	beat(nodes[0])
	want("this one has lost Redis in between", 2)
	beat(nodes[1])
	beat(nodes[2])
	beat(nodes[0])
	want("more nodes count at once", 3)
	if err := nodes[2].heartbeat(t.Context(), limits, 0); err != nil {
		t.Fatal(err)
	}
	nodes[0].health.steady = time.Now().Add(-nodeLife)
	beat(nodes[0])
	later()
	beat(nodes[0])
	want("one has left", 2)
	server.Do(t, "FLUSHALL")
	beat(nodes[0])
	want("Redis has lost its state", 2)
}
