package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
)

// fakeStore passes every charge, but for the limits that it is told to deny, and remembers what it
// was asked. It is safe for concurrent use once it is set up.
type fakeStore struct {
	deny   map[string]time.Duration // limit → retry after
	broken map[string]error         // limit → what its requests fail with
	err    error                    // of every call

	degraded bool // the answers come from elsewhere

	mu        sync.Mutex
	calls     [][]string // guarded by mu; each request as "limit cost, limit cost"
	deadlines []time.Time
	keys      []string
	forgotten []string
	settled   []*limit.Settlement
}

func (s *fakeStore) Decide(_ context.Context, requests []limit.Request, decisions []*limit.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var call []string
	for i, r := range requests {
		d := decisions[i]
		d.Tier, d.Degraded = limit.TierRedis, s.degraded
		var charges []string
		for _, c := range r.Charges {
			charges = append(charges, fmt.Sprint(c.Limit.Name, " ", c.Cost))
			s.keys = append(s.keys, c.Key)
			if err := s.broken[c.Limit.Name]; err != nil {
				d.Err = err
			}
			wait := s.deny[c.Limit.Name]
			d.Verdicts = append(d.Verdicts, limit.Verdict{
				Limit: c.Limit, Settings: c.Settings, Allowed: wait == 0, Known: true,
				RetryAfter: wait, Remaining: c.Settings.Capacity() - c.Cost,
			})
		}
		if s.err != nil {
			d.Reset()
			d.Err = s.err
		}
		call = append(call, strings.Join(charges, ", "))
		s.deadlines = append(s.deadlines, r.Deadline)
	}
	s.calls = append(s.calls, call)
}

func (s *fakeStore) Settle(_ context.Context, settlement *limit.Settlement) (limit.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, settlement)
	return limit.Settled{Done: true, At: time.Now().UnixMicro()}, s.err
}

func (s *fakeStore) Forget(ctx context.Context, c limit.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, c.Key)
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("no deadline")
	}
	return s.err
}

const timeout = 50 * time.Millisecond

// newRules returns the limits a, b and s, a shadow, which hold 10, 5 and 3, and none, which holds
// 0; and policies of them in several orders.
func newRules(t *testing.T) *limit.Rules {
	t.Helper()
	named := func(name string, burst int64) *limit.Limit {
		bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1_000_000}, burst, burst)
		if err != nil {
			t.Fatal(err)
		}
		return &limit.Limit{
			Name: name, Unit: limit.RequestsUnit, DefaultCost: 1,
			Key: []string{"user"}, Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
		}
	}
	a, b, s, none, vip := named("a", 10), named("b", 5), named("s", 3), named("none", 0), named("vip", 7)
	s.Shadow = true
	vip.When = []limit.Match{{Attribute: "user", Pattern: "vip-*"}}
	rules, err := limit.NewRules("rl", []string{"user"}, []*limit.Limit{a, b, s, none, vip}, []*limit.Policy{
		{Name: "ab", Limits: []*limit.Limit{a, b}},
		{Name: "asb", Limits: []*limit.Limit{a, s, b}},
		{Name: "sa", Limits: []*limit.Limit{s, a}},
		{Name: "none-s-a", Limits: []*limit.Limit{none, s, a}},
		{Name: "shadow", Limits: []*limit.Limit{s}},
		{Name: "barred", Limits: []*limit.Limit{a, none}},
		{Name: "vips", Limits: []*limit.Limit{vip}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

type bench struct {
	*limiter.Limiter
	store    *fakeStore
	registry *prometheus.Registry
}

func newBench(t *testing.T, store *fakeStore, tier limiter.Tier) bench {
	t.Helper()
	registry := prometheus.NewRegistry()
	l, err := limiter.New(limiter.Config{
		Store: store, Tier: tier, Secret: func() limit.Secret { return limit.Secret("secret") },
		Timeout: timeout, Rules: newRules(t), Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	return bench{l, store, registry}
}

// query asks policy for user with the given cost of requests.
func query(policy, user string, cost int64) limit.Query {
	return limit.Query{Policy: policy, Attributes: limit.Attributes{{Name: "user", Value: user}}, HasAmount: true, Amount: cost}
}

func (b bench) decide(queries ...limit.Query) []limit.Decision {
	decisions := make([]limit.Decision, len(queries))
	b.Decide(context.Background(), time.Now(), queries, decisions)
	return decisions
}

// verdicts writes a decision's verdicts as "limit outcome".
func verdicts(d *limit.Decision) string {
	var all []string
	for _, v := range d.Verdicts {
		outcome := "allowed"
		switch {
		case v.Never:
			outcome = "never"
		case !v.Allowed:
			outcome = "denied"
		}
		all = append(all, v.Limit.Name+" "+outcome)
	}
	return strings.Join(all, ", ")
}
