package remote_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// sidecar is the path of a request as a sidecar has it, but for the breaker: a limiter, a local
// tier or none, and a store on Redis.
type sidecar struct {
	*limiter.Limiter
	t testing.TB
}

func newMirror(t testing.TB) *local.Tier {
	t.Helper()
	tier, err := local.NewTier(local.TierConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

func newSidecar(t testing.TB, addr string, rules *limit.Rules, tier limiter.Tier) *sidecar {
	t.Helper()
	store, err := remote.New(remote.Config{
		Addr: addr, Timeout: 5 * time.Second, KeyPrefix: "rl", Secret: limit.Secret("mirror"),
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	l, err := limiter.New(limiter.Config{
		Store: store, Tier: tier, Secret: store.Secret, Timeout: 5 * time.Second, Rules: rules, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &sidecar{Limiter: l, t: t}
}

// ask asks for the user u; a cost of 0 is a peek.
func (s *sidecar) ask(cost int64) limit.Decision {
	var d [1]limit.Decision
	s.Decide(context.Background(), time.Now(), []limit.Query{{Limit: "l", Key: "u", HasKey: true, Amount: cost, HasAmount: true}}, d[:])
	if d[0].Err != nil {
		s.t.Error(d[0].Err)
	}
	return d[0]
}

// want asks for 1 and fails the test when another tier answers, or answers otherwise.
func (s *sidecar) want(tier limit.Tier, allowed bool) {
	s.t.Helper()
	if d := s.ask(1); d.Tier != tier || d.Allowed != allowed {
		s.t.Errorf("allowed %v by tier %v, want %v by %v", d.Allowed, d.Tier, allowed, tier)
	}
}

func (s *sidecar) forget() {
	s.t.Helper()
	if err := s.Forget(context.Background(), "l", limit.Attributes{{Name: "user", Value: "u"}}); err != nil {
		s.t.Error(err)
	}
}

// mirrorRules are rules of one limit over the user, and the key of the user u.
func mirrorRules(t testing.TB, rate limit.Rate, burst int64) (rules *limit.Rules, key string) {
	t.Helper()
	bucket, err := limit.NewTokenBucket(rate, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, Key: []string{"user"}, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}}
	if rules, err = limit.NewRules("rl", nil, []*limit.Limit{l}, nil); err != nil {
		t.Fatal(err)
	}
	return rules, "rl:{" + l.ID() + ":u}"
}

var anHour = limit.Rate{Tokens: 1, Micros: 3_600_000_000}

// within asks every few ms until a request is allowed, and fails the test when that takes longer.
func (s *sidecar) within(most time.Duration) {
	s.t.Helper()
	start := time.Now()
	for !s.ask(1).Allowed {
		if time.Since(start) > most {
			s.t.Fatalf("still denied %v after the credit", time.Since(start))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestFloodOnADrainedKey(t *testing.T) {
	server := redistest.Start(t)
	rules, _ := mirrorRules(t, limit.Rate{Tokens: 1, Micros: 100_000}, 10)
	const nodes, perNode = 5, 8 // 8 callers on each, every 8ms on average: 5,000 requests/s together
	span := 10 * time.Second
	if testing.Short() {
		span = 3 * time.Second
	}
	var sidecars []*sidecar
	for range nodes {
		sidecars = append(sidecars, newSidecar(t, server.Addr(), rules, newMirror(t)))
		sidecars[len(sidecars)-1].ask(0) // connected
	}
	sidecars[0].ask(10)
	before := server.Calls(t, "evalsha")
	start := time.Now()
	var asked, admitted atomic.Int64
	var group sync.WaitGroup
	for i := range nodes * perNode {
		group.Go(func() {
			for next := start; time.Since(start) < span; {
				next = next.Add(time.Duration(rand.ExpFloat64() * perNode * float64(time.Millisecond)))
				time.Sleep(time.Until(next))
				asked.Add(1)
				if sidecars[i%nodes].ask(1).Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	seconds := time.Since(start).Seconds()
	calls := server.Calls(t, "evalsha") - before
	t.Logf("%.1fs: %.0f requests/s, %.1f calls/s, %.2f admitted/s", seconds, float64(asked.Load())/seconds, float64(calls)/seconds, float64(admitted.Load())/seconds)
	// Each node asks once for each token, and once more where its clock is a little ahead.
	if most := (nodes + 1) * 10 * seconds * 1.5; float64(calls) > most {
		t.Errorf("%d calls for the key in %.1fs, want at most %.0f", calls, seconds, most)
	}
	if got, refill := float64(admitted.Load()), 10*seconds; got < 0.98*refill-1 || got > refill+1 {
		t.Errorf("%.0f admitted of a refill of %.1f", got, refill)
	}
}

func TestRefundInRedisIsSeenWithinASecond(t *testing.T) {
	server := redistest.Start(t)
	rules, key := mirrorRules(t, anHour, 5)
	a, b := newSidecar(t, server.Addr(), rules, newMirror(t)), newSidecar(t, server.Addr(), rules, newMirror(t))
	a.ask(5)
	b.want(limit.TierRedis, false)
	a.want(limit.TierLocal, false)
	server.Do(t, "HSET", key, "tokens", "5")
	a.within(1100 * time.Millisecond)
	b.within(1100 * time.Millisecond)
}

func TestResetIsSeenAtOnceWhereItWasAsked(t *testing.T) {
	server := redistest.Start(t)
	rules, _ := mirrorRules(t, anHour, 1)
	a, b := newSidecar(t, server.Addr(), rules, newMirror(t)), newSidecar(t, server.Addr(), rules, newMirror(t))
	a.ask(1)
	b.want(limit.TierRedis, false)
	a.want(limit.TierLocal, false)
	a.forget()
	a.want(limit.TierRedis, true)
	b.forget()
	b.want(limit.TierRedis, true)
	b.forget()
	a.within(1100 * time.Millisecond)
}

func TestRaisedLimitActsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	rules, _ := mirrorRules(t, anHour, 5)
	a := newSidecar(t, server.Addr(), rules, newMirror(t))
	a.ask(5)
	a.want(limit.TierLocal, false)
	raised, _ := mirrorRules(t, limit.Rate{Tokens: 1, Micros: 1}, 5)
	a.SetRules(raised)
	a.want(limit.TierRedis, true)
	// A loaded file that changes nothing keeps what is known.
	a.SetRules(rules)
	a.ask(5)
	a.ask(5)
	again, _ := mirrorRules(t, anHour, 5)
	a.SetRules(again)
	if d := a.ask(5); d.Tier != limit.TierLocal {
		t.Errorf("tier %v after a reload without a change, want local", d.Tier)
	}
}

// TestDenialsAreLateByASecondAtMost: random demand from several sidecars, each behind a proxy that
// delays, while tokens come back in Redis and through resets. Nothing refills and a credit locks
// the requests out, so a bucket that has the cost after a local denial had it then too.
func TestDenialsAreLateByASecondAtMost(t *testing.T) {
	server := redistest.Start(t)
	rules, key := mirrorRules(t, anHour, 2000)
	truth := newSidecar(t, server.Socket(), rules, nil)
	truth.ask(2000)
	span := 20 * time.Second
	if testing.Short() {
		span = 3 * time.Second
	}
	var credit sync.RWMutex
	credited := time.Now()
	var denied, late atomic.Int64
	start := time.Now()
	var group sync.WaitGroup
	for range 3 {
		proxy := redistest.NewProxy(t, server.Addr())
		s := newSidecar(t, proxy.Addr(), rules, newMirror(t))
		for range 6 {
			group.Go(func() {
				for time.Since(start) < span {
					credit.RLock()
					cost := 1 + rand.Int64N(20)
					if d := s.ask(cost); d.Tier == limit.TierLocal {
						denied.Add(1)
						asked := time.Now()
						if truth.ask(0).Verdicts[0].Remaining >= cost {
							late.Add(1)
							if age := asked.Sub(credited); age > time.Second {
								t.Errorf("cost %d is denied %v after the last credit, but the bucket has it", cost, age)
							}
						}
					}
					credit.RUnlock()
					time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
				}
			})
		}
		group.Go(func() {
			for time.Since(start) < span {
				proxy.SetDelay(time.Duration(rand.Int64N(int64(15 * time.Millisecond))))
				time.Sleep(50 * time.Millisecond)
				if rand.IntN(50) > 0 {
					continue
				}
				credit.Lock()
				switch rand.IntN(3) {
				case 0:
					s.forget()
				case 1:
					server.Do(t, "DEL", key)
				case 2:
					truth.ask(1) // else there may be no state to give to
					server.Do(t, "HSET", key, "tokens", strconv.Itoa(200+rand.IntN(1800)))
				}
				credited = time.Now()
				credit.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("%d local denials, %d of them late", denied.Load(), late.Load())
	if denied.Load() < 100 {
		t.Errorf("%d local denials: the test sees too little", denied.Load())
	}
}
