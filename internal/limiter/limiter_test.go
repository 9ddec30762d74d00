package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
)

func TestDecide(t *testing.T) {
	second := map[string]time.Duration{"b": time.Second}
	tests := []struct {
		name     string
		deny     map[string]time.Duration
		query    limit.Query
		sent     string // "" for nothing
		verdicts string
		want     limit.Decision
	}{
		{"allowed", nil, query("ab", "u", 2), "a 2, b 2", "a allowed, b allowed", limit.Decision{Allowed: true, Tier: limit.TierRedis}},
		{"denied by the store", second, query("ab", "u", 2), "a 2, b 2", "a allowed, b denied", limit.Decision{Tier: limit.TierRedis, RetryAfter: time.Second}},
		{"a cost that never passes is not sent", nil, query("ab", "u", 6), "", "b never", limit.Decision{Never: true, Tier: limit.TierLocal}},
		{"nor one that passes nowhere", nil, query("ab", "u", 11), "", "a never, b never", limit.Decision{Never: true, Tier: limit.TierLocal}},
		{"a limit of 0", nil, query("barred", "u", 1), "", "none never", limit.Decision{Never: true, Tier: limit.TierLocal}},
		{"a peek at a limit of 0 is sent", nil, query("barred", "u", 0), "a 0, none 0", "a allowed, none allowed", limit.Decision{Allowed: true, Tier: limit.TierRedis}},
		{"a shadow's never is listed in its place", nil, query("asb", "u", 4), "a 4, b 4", "a allowed, s never, b allowed", limit.Decision{Allowed: true, Tier: limit.TierRedis}},
		{"first of the policy too", nil, query("sa", "u", 4), "a 4", "s never, a allowed", limit.Decision{Allowed: true, Tier: limit.TierRedis}},
		{"beside a denial", second, query("asb", "u", 4), "a 4, b 4", "a allowed, s never, b denied", limit.Decision{Tier: limit.TierRedis, RetryAfter: time.Second}},
		{"beside another never", nil, query("asb", "u", 6), "", "s never, b never", limit.Decision{Never: true, Tier: limit.TierLocal}},
		{"before a shadow's never", nil, query("none-s-a", "u", 4), "", "none never, s never", limit.Decision{Never: true, Tier: limit.TierLocal}},
		{"a shadow that denies is sent, and denies nothing", map[string]time.Duration{"s": time.Hour}, query("asb", "u", 1), "a 1, s 1, b 1", "a allowed, s denied, b allowed", limit.Decision{Allowed: true, Tier: limit.TierRedis}},
		{"nothing but a shadow's never", nil, query("shadow", "u", 4), "", "s never", limit.Decision{Allowed: true, Tier: limit.TierLocal}},
		{"no limit applies", nil, query("vips", "u", 1), "", "", limit.Decision{Allowed: true, Tier: limit.TierLocal}},
		{"a limit by its name", nil, limit.Query{Limit: "a", HasKey: true, Key: "u"}, "a 1", "a allowed", limit.Decision{Allowed: true, Tier: limit.TierRedis}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, &fakeStore{deny: tt.deny}, nil)
			d := b.decide(tt.query)[0]
			if got := fmt.Sprint(b.store.calls); got != fmt.Sprint([][]string{{tt.sent}}) && tt.sent != "" || tt.sent == "" && b.store.calls != nil {
				t.Errorf("the store was asked %s, want %q", got, tt.sent)
			}
			if got := verdicts(&d); got != tt.verdicts {
				t.Errorf("verdicts %q, want %q", got, tt.verdicts)
			}
			if d.Err != nil || d.Allowed != tt.want.Allowed || d.Never != tt.want.Never || d.Tier != tt.want.Tier || d.RetryAfter != tt.want.RetryAfter {
				t.Errorf("got %+v, want %+v", d, tt.want)
			}
		})
	}
}

// TestNeverVerdicts: what is left is known of a limit of 0 only, and no never has a wait.
func TestNeverVerdicts(t *testing.T) {
	b := newBench(t, &fakeStore{}, nil)
	for policy, known := range map[string]bool{"ab": false, "barred": true} {
		d := b.decide(query(policy, "u", 6))[0]
		v := d.Verdicts[0]
		if !v.Never || v.Allowed || v.Known != known || v.Remaining != 0 || v.RetryAfter != 0 || v.ResetAfter != 0 {
			t.Errorf("%s: got %+v, want known %t and nothing else", policy, v, known)
		}
	}
}

// TestBatch: independent questions go in one call and each gets its own answer, whatever stands
// between them.
func TestBatch(t *testing.T) {
	store := &fakeStore{deny: map[string]time.Duration{"b": time.Second}, broken: map[string]error{"vip": limit.ErrWrongType}}
	b := newBench(t, store, nil)
	decisions := b.decide(
		query("ab", "u", 1),
		query("none", "u", 1), // unknown
		limit.Query{Limit: "a", HasKey: true, Key: "u"},
		query("ab", "u", 11), // never
		query("vips", "vip-1", 1),
		query("ab", "", 1),    // no key
		query("vips", "u", 1), // applies to nobody
		query("sa", "u", 4),
	)
	if want := [][]string{{"a 1, b 1", "a 1", "vip 1", "a 4"}}; fmt.Sprint(store.calls) != fmt.Sprint(want) {
		t.Errorf("the store was asked %v, want %v", store.calls, want)
	}
	var got []string
	for i := range decisions {
		d := &decisions[i]
		text := fmt.Sprint(d.Allowed, " ", verdicts(d))
		if d.Err != nil {
			text = d.Err.Error()
		}
		got = append(got, text)
	}
	want := []string{
		"false a allowed, b denied",
		`limit: no such policy or limit: policy "none"`,
		"true a allowed",
		"false a never, b never",
		"limit: a key holds something that is no state of its limit",
		"limit: attributes.user: empty; it is part of a key, so it needs a value",
		"true ",
		"true s never, a allowed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestStoreFailure: whoever needed the store gets its error and nothing else; the others do not
// notice.
func TestStoreFailure(t *testing.T) {
	cause := &limit.StoreError{Failure: limit.FailureTimeout, Err: context.DeadlineExceeded}
	b := newBench(t, &fakeStore{err: cause}, nil)
	decisions := b.decide(query("ab", "u", 1), query("ab", "u", 11), query("vips", "u", 1), query("sa", "u", 4))
	for i, d := range decisions {
		switch i {
		case 0, 3:
			if !errors.Is(d.Err, limit.ErrUnavailable) || !errors.Is(d.Err, context.DeadlineExceeded) || d.Allowed || len(d.Verdicts) > 0 || d.Tier != limit.TierNone {
				t.Errorf("query %d: got %+v, want the store's error alone", i, d)
			}
		default:
			if d.Err != nil || len(d.Verdicts) == 0 && !d.Allowed {
				t.Errorf("query %d: got %+v, want an answer", i, d)
			}
		}
	}
}

// TestDecisionsAreReused: what a decision held before does not show.
func TestDecisionsAreReused(t *testing.T) {
	b := newBench(t, &fakeStore{deny: map[string]time.Duration{"b": time.Second}}, nil)
	decisions := make([]limit.Decision, 1)
	for _, step := range []struct {
		query limit.Query
		want  string
	}{
		{query("ab", "u", 1), "false a allowed, b denied <nil>"},
		{query("ab", "u", 11), "false a never, b never <nil>"},
		{query("vips", "u", 1), "true  <nil>"},
		{query("ab", "", 1), "false  limit: attributes.user: empty; it is part of a key, so it needs a value"},
		{limit.Query{Limit: "a", HasKey: true, Key: "u"}, "true a allowed <nil>"},
	} {
		b.Decide(t.Context(), time.Now(), []limit.Query{step.query}, decisions)
		d := &decisions[0]
		if got := fmt.Sprint(d.Allowed, " ", verdicts(d), " ", d.Err); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}

// TestRequestsCarryTheirDeadline: arrival + timeout, however late the question is asked.
func TestRequestsCarryTheirDeadline(t *testing.T) {
	b := newBench(t, &fakeStore{}, nil)
	arrival := time.Now().Add(-20 * time.Millisecond)
	b.Decide(t.Context(), arrival, []limit.Query{query("ab", "u", 1), query("sa", "u", 4)}, make([]limit.Decision, 2))
	if want := arrival.Add(timeout); len(b.store.deadlines) != 2 || !b.store.deadlines[0].Equal(want) || !b.store.deadlines[1].Equal(want) {
		t.Errorf("deadlines %v, want %v twice", b.store.deadlines, want)
	}
}

// TestSecretMayChange: a hashed attribute's key follows the secret in force.
func TestSecretMayChange(t *testing.T) {
	secret, store := limit.Secret("one"), &fakeStore{}
	l, err := limiter.New(limiter.Config{
		Store: store, Secret: func() limit.Secret { return secret }, Timeout: timeout,
		Rules: newRules(t), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two", "one"} {
		secret = limit.Secret(text)
		l.Decide(t.Context(), time.Now(), []limit.Query{{Limit: "a", HasKey: true, Key: "u"}}, make([]limit.Decision, 1))
	}
	k := store.keys
	if len(k) != 3 || k[0] == k[1] || k[0] != k[2] || !strings.Contains(k[0], limit.Secret("one").Hash("user", "u")) {
		t.Errorf("keys %q", k)
	}
}
