package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// desk is a limiter over a Memory, with a leaky bucket that passes one request every 100 ms, tokens,
// slots, and a policy of the three.
type desk struct {
	*limiter.Limiter
	t *testing.T
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return newDeskOn(t, memory)
}

func newDeskOn(t *testing.T, store limiter.Store) *desk {
	t.Helper()
	l, err := limiter.New(limiter.Config{
		Store: store, Embedded: true, Secret: func() limit.Secret { return limit.Secret("secret") },
		Timeout: timeout, Rules: deskRules(t, 1000), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{l, t}
}

// deskRules are the rules of a desk, with the given burst of tokens.
func deskRules(t *testing.T, burst int64) *limit.Rules {
	t.Helper()
	bucket := func(a limit.Algorithm, micros, burst int64) limit.Settings {
		b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: micros}, burst, burst)
		if err != nil {
			t.Fatal(err)
		}
		return limit.Settings{Algorithm: a, Bucket: b}
	}
	slots, err := limit.NewConcurrency(2, 7_200_000_000)
	if err != nil {
		t.Fatal(err)
	}
	paced := &limit.Limit{Name: "paced", Unit: limit.RequestsUnit, DefaultCost: 1, Key: []string{"user"}, Settings: bucket(limit.LeakyBucketAlgorithm, 100_000, 1)}
	tokens := &limit.Limit{Name: "tokens", Unit: "tokens", Key: []string{"user"}, Settings: bucket(limit.TokenBucketAlgorithm, 3_600_000_000, burst)}
	busy := &limit.Limit{Name: "busy", Unit: limit.RequestsUnit, DefaultCost: 1, Key: []string{"user"}, Settings: slots}
	limits := []*limit.Limit{paced, tokens, busy}
	rules, err := limit.NewRules("rl", nil, limits, []*limit.Policy{
		{Name: "all", Limits: limits},
		{Name: "two", Limits: limits[:2]},
		{Name: "slots", Limits: limits[1:]},
	})
	if err != nil {
		t.Fatal(err)
	}
	rules.TicketTTL, rules.RequestIDTTL = time.Hour, time.Minute
	return rules
}

// ask asks policy for a request of so many tokens.
func (k *desk) ask(ctx context.Context, policy string, tokens int64, change func(*limit.Query)) limit.Decision {
	q := limit.Query{
		Policy: policy, Attributes: limit.Attributes{{Name: "user", Value: "u"}},
		Costs: []limit.UnitCost{{Unit: "tokens", Amount: tokens}},
	}
	if change != nil {
		change(&q)
	}
	decisions := make([]limit.Decision, 1)
	k.Decide(ctx, time.Now(), []limit.Query{q}, decisions)
	return decisions[0]
}

// left returns what is left of the limit.
func (k *desk) left(name string) int64 {
	k.t.Helper()
	decisions := make([]limit.Decision, 1)
	k.Decide(k.t.Context(), time.Now(), []limit.Query{{Limit: name, HasKey: true, Key: "u", Peek: true}}, decisions)
	if decisions[0].Err != nil {
		k.t.Fatal(decisions[0].Err)
	}
	return decisions[0].Verdicts[0].Remaining
}

func waits(d time.Duration) func(*limit.Query) {
	return func(q *limit.Query) { q.MaxWait = d }
}

func wantsTicket(q *limit.Query) { q.Ticket = true }
