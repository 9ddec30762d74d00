package limiter_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// slowStore is a Memory that takes its time, or never answers.
type slowStore struct {
	memory *local.Memory
	takes  time.Duration
	mu     sync.Mutex
	calls  int // guarded by mu
	late   int // calls that began too late to be answered in time; guarded by mu
	silent bool
}

func (s *slowStore) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	s.mu.Lock()
	s.calls++
	if time.Until(requests[0].Deadline) < s.takes {
		s.late++
	}
	silent := s.silent
	s.mu.Unlock()
	if silent {
		time.Sleep(time.Until(requests[0].Deadline))
		for _, d := range decisions {
			d.Err = &limit.StoreError{Failure: limit.FailureTimeout, Err: context.DeadlineExceeded}
		}
		return
	}
	time.Sleep(s.takes / 2)
	s.memory.Decide(ctx, requests, decisions)
	time.Sleep(s.takes / 2)
}

func (s *slowStore) Settle(ctx context.Context, settlement *limit.Settlement) (limit.Settled, error) {
	return s.memory.Settle(ctx, settlement)
}
func (s *slowStore) Forget(ctx context.Context, c limit.Charge) error { return s.memory.Forget(ctx, c) }

// newSlow returns a limiter with the real tier over a store that takes 2 ms; its limit has a
// burst of 2 and gains a token every 100 ms.
func newSlow(t *testing.T) (*limiter.Limiter, *slowStore) {
	t.Helper()
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	tier, err := local.NewTier(local.TierConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 100_000}, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := limit.NewRules("rl", nil, []*limit.Limit{{
		Name: "slow", Unit: limit.RequestsUnit, DefaultCost: 1,
		Key: []string{"user"}, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &slowStore{memory: memory, takes: 2 * time.Millisecond}
	l, err := limiter.New(limiter.Config{
		Store: store, Tier: tier, Secret: func() limit.Secret { return nil }, Timeout: 50 * time.Millisecond,
		Rules: rules, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, store
}

// flood asks n questions at once, and returns how many passed, how many failed, and the longest
// wait for an answer.
func flood(l *limiter.Limiter, n int) (allowed, failed int, longest time.Duration) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			start := time.Now()
			queries := []limit.Query{{Limit: "slow", Attributes: limit.Attributes{{Name: "user", Value: "u"}}}}
			decisions := make([]limit.Decision, 1)
			l.Decide(context.Background(), start, queries, decisions)
			mu.Lock()
			defer mu.Unlock()
			if decisions[0].Allowed {
				allowed++
			}
			if decisions[0].Err != nil {
				failed++
			}
			longest = max(longest, time.Since(start))
		})
	}
	group.Wait()
	return allowed, failed, longest
}

// TestFloodIsOneCallAtATime: while the answer to one question will most likely decide the others,
// they wait for it, and every token is still handed out.
func TestFloodIsOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := newSlow(t)
		flood(l, 3) // nothing is known yet: all are asked
		store.calls = 0
		passed := 0
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			allowed, failed, longest := flood(l, 50)
			if failed > 0 || longest > 10*time.Millisecond {
				t.Fatalf("%d failed, the longest wait was %v", failed, longest)
			}
			passed += allowed
		}
		if passed < 20 || passed > 24 {
			t.Errorf("20 tokens came back, %d passed", passed)
		}
		if store.calls > passed+2 {
			t.Errorf("%d calls for %d grants among 1,000 questions", store.calls, passed)
		}
	})
}

// TestFloodOnASilentStore: those that wait for an answer that never comes get theirs in time, and
// the next answer finds nobody still counted as under way.
func TestFloodOnASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := newSlow(t)
		flood(l, 3)
		time.Sleep(100 * time.Millisecond)
		store.silent = true
		allowed, _, longest := flood(l, 50)
		if allowed > 0 || longest > 50*time.Millisecond {
			t.Errorf("%d passed, the longest wait was %v", allowed, longest)
		}
		store.silent = false
		time.Sleep(time.Second)
		if allowed, failed, _ := flood(l, 2); allowed != 2 || failed > 0 {
			t.Errorf("afterwards %d of 2 passed, %d failed", allowed, failed)
		}
	})
}

// TestFloodOnASlowStore: where an answer takes long, or the bucket gains while it is under way,
// nobody waits for another's answer and then has no time for a call of its own.
func TestFloodOnASlowStore(t *testing.T) {
	for _, takes := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l, store := newSlow(t)
			store.takes = takes
			for range 40 {
				time.Sleep(37 * time.Millisecond)
				if _, failed, longest := flood(l, 20); failed > 0 || longest > 50*time.Millisecond {
					t.Fatalf("a store that takes %v: %d failed, the longest wait was %v", takes, failed, longest)
				}
			}
			if store.late > 0 {
				t.Errorf("a store that takes %v was asked %d questions that it could not answer in time", takes, store.late)
			}
		})
	}
}

// TestCanceledWhileWaiting: a caller that goes away while it waits for another's answer goes on at
// once, without waiting again.
func TestCanceledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := newSlow(t)
		flood(l, 3)
		time.Sleep(100 * time.Millisecond)
		store.takes = 40 * time.Millisecond // longer than the last answer took
		go flood(l, 1)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before, start := store.calls, time.Now()
		queries := []limit.Query{{Limit: "slow", Attributes: limit.Attributes{{Name: "user", Value: "u"}}}}
		l.Decide(ctx, start, queries, make([]limit.Decision, 1))
		if waited := time.Since(start); waited != store.takes || store.calls != before+1 {
			t.Errorf("waited %v with %d calls, want the %v of its one call", waited, store.calls-before, store.takes)
		}
		time.Sleep(time.Second)
	})
}
