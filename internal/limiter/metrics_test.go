package limiter_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
)

// counts returns the counters above 0 as "policy result tier" or "limit result tier" → count.
func (b bench) counts(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			value := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value > 0 {
				all[fmt.Sprint(labels["policy"]+labels["limit"], " ", labels["result"], " ", labels["tier"])] = value
			}
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	store := &fakeStore{deny: map[string]time.Duration{"b": time.Second}, broken: map[string]error{"vip": limit.ErrWrongType}}
	b := newBench(t, store, nil)
	b.decide(
		query("ab", "u", 1), query("ab", "u", 1), // denied by b
		limit.Query{Limit: "a", HasKey: true, Key: "u"}, // allowed
		query("ab", "u", 11),                            // never
		query("sa", "u", 4),                             // allowed, but for the shadow
		query("sa", "u", 1),                             // allowed
		query("vips", "vip", 1),                         // applies to nobody
		query("vips", "vip-", 1),                        // wrong type
		query("ab", "", 1),                              // invalid
		query("unknown", "u", 1),
	)
	requests := map[string]float64{
		"ab denied redis": 2, " allowed redis": 1, "ab never local": 1, "sa shadow_denied redis": 1, "sa allowed redis": 1,
		"vips allowed local": 1, "vips error redis": 1, "ab error none": 1, " error none": 1,
	}
	if got := b.counts(t, "tidegate_requests_total"); !maps.Equal(got, requests) {
		t.Errorf("requests_total\ngot  %v\nwant %v", got, requests)
	}
	decisions := map[string]float64{
		"a allowed redis": 5, "b denied redis": 2, "a never local": 1, "b never local": 1,
		"s shadow_denied redis": 1, "s allowed redis": 1,
	}
	if got := b.counts(t, "tidegate_decisions_total"); !maps.Equal(got, decisions) {
		t.Errorf("decisions_total\ngot  %v\nwant %v", got, decisions)
	}
	durations := map[string]float64{"  redis": 6, "  local": 2, "  none": 1}
	if got := b.counts(t, "tidegate_decision_duration_seconds"); !maps.Equal(got, durations) {
		t.Errorf("decision_duration_seconds\ngot  %v\nwant %v", got, durations)
	}
	if problems, err := testutil.GatherAndLint(b.registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// TestLocalDenialsAreCounted by the same counters, and a failed call as an error.
func TestLocalDenialsAreCounted(t *testing.T) {
	b := newBench(t, &fakeStore{err: limit.ErrUnavailable}, &fakeTier{deny: map[string]time.Duration{"a": time.Second}})
	for range 100 {
		b.decide(query("ab", "u", 1))
	}
	b.decide(limit.Query{Limit: "b", HasKey: true, Key: "u"})
	if got, want := b.counts(t, "tidegate_requests_total"), map[string]float64{"ab denied local": 100, " error none": 1}; !maps.Equal(got, want) {
		t.Errorf("requests_total: got %v, want %v", got, want)
	}
	if got, want := b.counts(t, "tidegate_decisions_total"), map[string]float64{"a denied local": 100}; !maps.Equal(got, want) {
		t.Errorf("decisions_total: got %v, want %v", got, want)
	}
}

// TestLabelsDoNotGrow: no number of keys makes another line, and rules put in force again go on
// counting.
func TestLabelsDoNotGrow(t *testing.T) {
	b := newBench(t, &fakeStore{}, nil)
	lines := func() int {
		n, err := testutil.GatherAndCount(b.registry)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b.decide(query("ab", "first", 1), query("unknown", "u", 1))
	before := lines()
	for i := range 999 {
		b.decide(query("ab", fmt.Sprint("user-", i), 1), query(fmt.Sprint("policy-", i), "u", 1))
		if i%100 == 0 {
			b.SetRules(newRules(t))
		}
	}
	if after := lines(); after != before {
		t.Errorf("%d lines, then %d", before, after)
	}
	if got, want := b.counts(t, "tidegate_requests_total"), map[string]float64{"ab allowed redis": 1000, " error none": 1000}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	cfg := limiter.Config{
		Store: &fakeStore{}, Secret: func() limit.Secret { return nil }, Timeout: timeout, Rules: newRules(t), Registry: prometheus.NewRegistry(),
	}
	if _, err := limiter.New(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := limiter.New(cfg); err == nil {
		t.Error("a second limiter on the same registry is no error")
	}
}

// TestConcurrentUse asks from many goroutines while the rules change, for the race detector: every
// question is answered by the rules of one generation.
func TestConcurrentUse(t *testing.T) {
	b := newBench(t, &fakeStore{deny: map[string]time.Duration{"b": time.Second}}, nil)
	stop := make(chan struct{})
	var reloads, callers sync.WaitGroup
	reloads.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.SetRules(newRules(t))
			}
		}
	})
	for range 8 {
		callers.Go(func() {
			decisions := make([]limit.Decision, 3)
			for range 100 {
				queries := []limit.Query{query("ab", "u", 1), query("sa", "u", 4), {Limit: "a", HasKey: true, Key: "u"}}
				b.Decide(context.Background(), time.Now(), queries, decisions)
				for i, want := range []string{"a allowed, b denied", "s never, a allowed", "a allowed"} {
					if got := verdicts(&decisions[i]); got != want || decisions[i].Err != nil {
						t.Errorf("query %d: got %q, %v, want %q", i, got, decisions[i].Err, want)
					}
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	reloads.Wait()
}
