package local_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// slowStore decides a request in its middle: there is a way to it and a way back.
type slowStore struct {
	*local.Memory
	there, back time.Duration

	mu    sync.Mutex
	calls int // guarded by mu
}

func (s *slowStore) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	time.Sleep(s.there)
	defer time.Sleep(s.back)
	s.Memory.Decide(ctx, requests, decisions)
}

func (s *slowStore) Forget(ctx context.Context, c limit.Charge) error {
	time.Sleep(s.there)
	defer time.Sleep(s.back)
	return s.Memory.Forget(ctx, c)
}

// path is a limiter with one limit, a tier and a slow store.
type path struct {
	t     *testing.T
	store *slowStore
	*limiter.Limiter
}

func rulesOf(t testing.TB, s limit.Settings) *limit.Rules {
	t.Helper()
	l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, DefaultCost: 1, Key: []string{"user"}, Settings: s}
	rules, err := limit.NewRules("rl", nil, []*limit.Limit{l}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func newPath(t *testing.T, b limit.TokenBucket, there, back time.Duration) *path {
	return newPathOf(t, bucketOf(b), there, back)
}

func newPathOf(t *testing.T, settings limit.Settings, there, back time.Duration) *path {
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	store := &slowStore{Memory: memory, there: there, back: back}
	l, err := limiter.New(limiter.Config{
		Store: store, Tier: newTier(t, local.TierConfig{}), Timeout: time.Second,
		Secret: func() limit.Secret { return nil }, Rules: rulesOf(t, settings), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &path{t: t, store: store, Limiter: l}
}

// ask asks for one user, and fails the test when another tier than the wanted one answers.
func (p *path) ask(cost int64, want limit.Tier) limit.Decision {
	p.t.Helper()
	queries := []limit.Query{{Limit: "l", Key: "u", HasKey: true, Amount: cost, HasAmount: true}}
	var d [1]limit.Decision
	p.Decide(context.Background(), time.Now(), queries, d[:])
	if d[0].Err != nil || d[0].Tier != want {
		p.t.Fatalf("cost %d: tier %v, error %v; want tier %v", cost, d[0].Tier, d[0].Err, want)
	}
	return d[0]
}

func TestLimiterDatesAnswersBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPath(t, even(t, 10, 1_000_000, 1), 0, 40*time.Millisecond)
		p.ask(1, limit.TierEmbedded) // granted at 0, known at 40ms
		time.Sleep(50 * time.Millisecond)
		p.ask(1, limit.TierLocal)
		time.Sleep(10 * time.Millisecond)
		if d := p.ask(1, limit.TierEmbedded); !d.Allowed {
			t.Error("denied 100ms after the grant, at 10/s")
		}
	})
}

func TestLocalWaitIsNeverTooShort(t *testing.T) {
	for cost := range int64(5) {
		synctest.Test(t, func(t *testing.T) {
			const there, back = 5 * time.Millisecond, 2 * time.Millisecond
			p := newPath(t, even(t, 3, 1_000_000, 5), there, back)
			start := time.Now()
			p.ask(5, limit.TierEmbedded)
			time.Sleep(10 * time.Millisecond)
			truth := there + time.Duration((cost+1)*1_000_000+2)/3*time.Microsecond - time.Since(start)
			d := p.ask(cost+1, limit.TierLocal)
			if d.RetryAfter < truth || d.RetryAfter > truth+there+back {
				t.Errorf("cost %d: retry after %v, want %v or up to %v more", cost+1, d.RetryAfter, truth, there+back)
			}
			p.store.there = 0 // the next call is quicker: what was short by the way there would show
			time.Sleep(d.RetryAfter)
			if d := p.ask(cost+1, limit.TierEmbedded); !d.Allowed {
				t.Errorf("cost %d: denied after waiting as told", cost+1)
			}
		})
	}
}

func TestAnswersAgeFromTheAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPath(t, even(t, 1, 3_600_000_000, 1), 0, 40*time.Millisecond)
		p.ask(1, limit.TierEmbedded)
		time.Sleep(960 * time.Millisecond)
		p.ask(1, limit.TierLocal)
		time.Sleep(time.Millisecond)
		p.ask(1, limit.TierEmbedded)
	})
}

func TestForgetIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPath(t, even(t, 1, 3_600_000_000, 1), 2*time.Millisecond, 5*time.Millisecond)
		p.ask(1, limit.TierEmbedded)
		p.ask(1, limit.TierLocal)
		forget := func() {
			if err := p.Forget(context.Background(), "l", limit.Attributes{{Name: "user", Value: "u"}}); err != nil {
				t.Error(err)
			}
		}
		go forget()
		time.Sleep(3 * time.Millisecond)
		if d := p.ask(1, limit.TierEmbedded); !d.Allowed { // while the reply is under way
			t.Error("denied during a reset that is done")
		}
		p.ask(1, limit.TierEmbedded) // what was asked before the reset ended is not trusted
		p.ask(1, limit.TierLocal)
		forget()
		if d := p.ask(1, limit.TierEmbedded); !d.Allowed {
			t.Error("denied after a reset")
		}
		p.ask(1, limit.TierLocal)
	})
}

func TestChangedLimitActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPath(t, even(t, 1, 3_600_000_000, 1), time.Millisecond, time.Millisecond)
		p.ask(1, limit.TierEmbedded)
		p.ask(1, limit.TierLocal)
		p.SetRules(rulesOf(t, bucketOf(even(t, 1, 3_600_000_000, 1))))
		p.ask(1, limit.TierLocal) // the same settings keep what is known
		p.SetRules(rulesOf(t, bucketOf(even(t, 1000, 1_000_000, 1))))
		if d := p.ask(1, limit.TierEmbedded); !d.Allowed {
			t.Error("denied by what was known of the slower limit")
		}
	})
}

func TestWrongAnswersAreNotObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPath(t, even(t, 1, 3_600_000_000, 1), 0, 0)
		for range 3 { // what can never pass is denied without being known
			if d := p.ask(2, limit.TierLocal); !d.Never || p.store.calls != 0 {
				t.Errorf("got %+v after %d calls, want never without one", d, p.store.calls)
			}
		}
		p.ask(1, limit.TierEmbedded)
		p.ask(0, limit.TierEmbedded) // a peek asks
		p.ask(1, limit.TierLocal)
		if p.store.calls != 2 {
			t.Errorf("%d calls, want 2", p.store.calls)
		}
	})
}

// TestRememberedWaitIsNeverTooShort is TestLocalWaitIsNeverTooShort for windows and logs.
func TestRememberedWaitIsNeverTooShort(t *testing.T) {
	for _, s := range remembering(t) {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const there, back = 5 * time.Millisecond, 2 * time.Millisecond
				p := newPathOf(t, s, there, back)
				p.ask(10, limit.TierEmbedded)
				asked := time.Now()
				passes := p.ask(4, limit.TierEmbedded).RetryAfter + there - time.Since(asked)
				time.Sleep(10 * time.Millisecond)
				passes -= 10 * time.Millisecond
				d := p.ask(4, limit.TierLocal)
				if d.RetryAfter < passes || d.RetryAfter > passes+there+back {
					t.Errorf("retry after %v, want %v or up to %v more", d.RetryAfter, passes, there+back)
				}
				p.store.there = 0 // the next call is quicker: what was short by the way there would show
				time.Sleep(d.RetryAfter)
				if d := p.ask(4, limit.TierEmbedded); !d.Allowed {
					t.Error("denied after waiting as told")
				}
			})
		})
	}
}

// TestFloodOnAWindowIsOneCallAtATime: a drained key costs a few calls for each time that something
// comes back, or where costs differ and so each wants its own wait, one call at a time. All that comes
// back is handed out.
func TestFloodOnAWindowIsOneCallAtATime(t *testing.T) {
	for _, s := range remembering(t) {
		for _, largest := range []int64{1, 5} {
			t.Run(fmt.Sprint(s.Algorithm, " up to ", largest), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPathOf(t, s, time.Millisecond, time.Millisecond)
					p.ask(10, limit.TierEmbedded)
					p.store.calls = 0
					var asked, granted atomic.Int64
					start := time.Now()
					var group sync.WaitGroup
					for i := range 50 {
						rng := rand.New(rand.NewPCG(1, uint64(i)))
						group.Go(func() {
							for time.Since(start) < 6*time.Second {
								cost := 1 + rng.Int64N(largest)
								query := []limit.Query{{Limit: "l", Key: "u", HasKey: true, Amount: cost, HasAmount: true}}
								var d [1]limit.Decision
								if p.Decide(context.Background(), time.Now(), query, d[:]); d[0].Allowed {
									granted.Add(cost)
								}
								asked.Add(1)
								time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Millisecond))))
							}
						})
					}
					group.Wait()
					t.Logf("%d asked, %d granted, %d calls", asked.Load(), granted.Load(), p.store.calls)
					most := 400
					if largest > 1 && s.Algorithm != limit.FixedWindowAlgorithm {
						most = int(6 * time.Second / (2 * time.Millisecond))
					}
					if asked.Load() < 100_000 || p.store.calls > most {
						t.Errorf("%d calls for %d requests, want at most %d", p.store.calls, asked.Load(), most)
					}
					if granted.Load() < 80 {
						t.Errorf("%d were granted, want about the 100 that came back", granted.Load())
					}
				})
			})
		}
	}
}
