package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/limit"
)

const (
	second = 1_000_000 // µs
	minute = 60 * second
)

// must returns settings that a test knows to be good.
func must(t *testing.T) func(limit.Settings, error) limit.Settings {
	return func(s limit.Settings, err error) limit.Settings {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// leaky returns the settings of a leaky bucket, which are those of a token bucket by another name.
func leaky(t *testing.T, rate string, burst int64) limit.Settings {
	t.Helper()
	parsed, err := limit.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := limit.NewTokenBucket(parsed.Rate, burst, burst)
	return must(t)(limit.Settings{Algorithm: limit.LeakyBucketAlgorithm, Bucket: bucket}, err)
}

func TestEveryAlgorithmArrives(t *testing.T) {
	is := must(t)
	tests := []struct {
		settings string
		want     limit.Settings
		state    limit.StateForm
	}{
		{"algorithm: leaky_bucket, rate: 10/s", leaky(t, "10/s", 1), limit.HashState},
		{"algorithm: leaky_bucket, rate: 0.5/s, burst: 20, state: string", leaky(t, "0.5/s", 20), limit.StringState},
		{"algorithm: leaky_bucket_log, rate: 10/s, capacity: 50", is(limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: 100_000}, 50)), limit.HashState},
		{"algorithm: sliding_window_log, limit: 5, window: 15m", is(limit.NewSlidingWindowLog(5, 15*minute)), limit.HashState},
		{"algorithm: sliding_window, limit: 1000, window: 1m, state: hash", is(limit.NewSlidingWindow(1000, minute)), limit.HashState},
		{"algorithm: sliding_window, limit: 5000000000, window: 1m, state: string", is(limit.NewSlidingWindow(5_000_000_000, minute)), limit.StringState},
		{"algorithm: fixed_window, limit: 100, window: 100ms", is(limit.NewFixedWindow(100, 100_000)), limit.HashState},
		{"algorithm: fixed_window, limit: 100, period: day", is(limit.NewCalendarWindow(100, limit.Day, time.UTC)), limit.HashState},
		{"algorithm: fixed_window, limit: 100, period: week, timezone: UTC, state: string", is(limit.NewCalendarWindow(100, limit.Week, time.UTC)), limit.StringState},
		{"algorithm: concurrency, limit: 20, ttl: 30s", is(limit.NewConcurrency(20, 30*second)), limit.HashState},
	}
	for _, tt := range tests {
		if l := oneLimit(t, tt.settings); l.Settings != tt.want || l.State != tt.state {
			t.Errorf("%s:\n got %+v, state %v\nwant %+v, state %v", tt.settings, l.Settings, l.State, tt.want, tt.state)
		}
	}
}

// A quota's day begins at the midnight of its own time zone; in one file a zone is loaded once.
func TestTimezones(t *testing.T) {
	c := parse(t, `
limits:
  - {name: a, algorithm: fixed_window, limit: 5, period: day, timezone: Asia/Shanghai, overrides: [{when: {user: a}, limit: 10}]}
  - {name: b, algorithm: fixed_window, limit: 5, period: month, timezone: Asia/Shanghai}
  - {name: c, algorithm: fixed_window, limit: 5, period: month, timezone: Asia/Kathmandu}
`)
	a, b, other := c.Rules.Limits[0], c.Rules.Limits[1].Settings.Window, c.Rules.Limits[2].Settings.Window
	if got := a.Settings.Window; got.Zone.String() != "Asia/Shanghai" || got.Period != limit.Day || got.Micros != 0 {
		t.Errorf("window of a: %+v", got)
	}
	if got := a.Overrides[0].Settings.Window; got.Zone != a.Settings.Window.Zone || got.Period != limit.Day || got.Limit != 10 {
		t.Errorf("window of a's override: %+v", got)
	}
	if b.Zone != a.Settings.Window.Zone || b.Period != limit.Month {
		t.Errorf("window of b: %+v", b)
	}
	if _, offset := time.Unix(0, 0).Add(20 * 365 * 24 * time.Hour).In(other.Zone).Zone(); offset != 5*3600+45*60 {
		t.Errorf("Asia/Kathmandu is %ds from UTC, want +05:45", offset)
	}
}

// Of an override of any algorithm, what it leaves out stays as the limit has it.
func TestOverridesOfEveryAlgorithm(t *testing.T) {
	const (
		log      = "algorithm: leaky_bucket_log, "
		sliding  = "algorithm: sliding_window, window: 1m, "
		calendar = "algorithm: fixed_window, period: month, timezone: Europe/Paris, "
		slots    = "algorithm: concurrency, ttl: 1m, "
	)
	tests := []struct{ limit, override, same string }{
		{"algorithm: leaky_bucket, rate: 10/s", "rate: 20/s", "algorithm: leaky_bucket, rate: 20/s"},
		{"algorithm: leaky_bucket, rate: 10/s, burst: 5", "rate: 20/s", "algorithm: leaky_bucket, rate: 20/s, burst: 5"},
		{"algorithm: leaky_bucket, rate: 10/s", "burst: 5", "algorithm: leaky_bucket, rate: 10/s, burst: 5"},
		{"algorithm: leaky_bucket, rate: 10/s", "deny: true", "algorithm: leaky_bucket, rate: 0/s"},
		{log + "rate: 10/s, capacity: 5", "capacity: 50", log + "rate: 10/s, capacity: 50"},
		{log + "rate: 10/s, capacity: 5", "rate: 1/s", log + "rate: 1/s, capacity: 5"},
		{log + "rate: 10/s, capacity: 5", "deny: true", log + "rate: 0/s, capacity: 5"},
		{"algorithm: sliding_window_log, window: 1m, limit: 5", "limit: 50", "algorithm: sliding_window_log, window: 1m, limit: 50"},
		{sliding + "limit: 5", "limit: 5000000000", sliding + "limit: 5000000000"},
		{sliding + "limit: 5000000000", "limit: 5", sliding + "limit: 5"},
		{sliding + "limit: 5000000000", "deny: true", sliding + "limit: 0"},
		{"algorithm: fixed_window, window: 1m, limit: 5", "limit: 0", "algorithm: fixed_window, window: 1m, limit: 0"},
		{slots + "limit: 5", "limit: 50", slots + "limit: 50"},
		{slots + "limit: 5", "deny: true", slots + "limit: 0"},
	}
	for _, tt := range tests {
		l := oneLimit(t, tt.limit+", overrides: [{when: {user: a}, "+tt.override+"}]")
		if got, want := l.Overrides[0].Settings, oneLimit(t, tt.same).Settings; got != want || l.Overrides[0].Exempt {
			t.Errorf("%s on %s:\n got %+v\nwant %+v", tt.override, tt.limit, got, want)
		}
	}
	l := oneLimit(t, calendar+"limit: 5, overrides: [{when: {user: a}, deny: true}, {when: {user: b}, exempt: true}]")
	want := l.Settings
	want.Window.Limit = 0
	if l.Overrides[0].Settings != want || !l.Overrides[1].Exempt {
		t.Errorf("overrides of a calendar window: %+v, want %+v and exempt", l.Overrides, want)
	}
}

// Limits survive exactly up to 2^53 and print without an exponent; 0 lets nothing pass; what is
// negative, larger or no whole number is refused.
func TestLimitsAreWholeNumbers(t *testing.T) {
	for _, settings := range []string{"algorithm: fixed_window, period: day, ", "algorithm: sliding_window_log, window: 1d, ", "algorithm: concurrency, ttl: 1m, "} {
		for _, number := range []string{"0", "1", "25001", "3000000000", "123451234512345", "999999999999999", "9007199254740992"} {
			c := parse(t, "limits: [{name: a, "+settings+"limit: "+number+"}]")
			var text strings.Builder
			c.Describe(&text)
			shown := number
			if number == "0" {
				shown = "0: nothing passes"
			}
			if !strings.Contains(text.String(), "    limit             "+shown+"\n") {
				t.Errorf("%slimit: %s is described as\n%s", settings, number, text.String())
			}
			s := &c.Rules.Limits[0].Settings
			if got := s.Capacity(); (got == 0) != (number == "0") || got > limit.MaxNumber {
				t.Errorf("%slimit: %s has the capacity %d", settings, number, got)
			}
			if wait, _ := s.Decide(&limit.State{}, 1_700_000_000*second, 1); (wait == limit.Never) != (number == "0") {
				t.Errorf("%slimit: %s lets a request wait %dµs", settings, number, wait)
			}
		}
		for _, number := range []string{"-5", "9007199254740993", "18446744073709551617", "1e3", "1.5", "'5'"} {
			got := refused(t, "limits: [{name: a, "+settings+"limit: "+number+"}]")
			if !strings.Contains(got, ": limit is ") || strings.Contains(got, "\n") {
				t.Errorf("%slimit: %s: %s", settings, number, got)
			}
		}
	}
}

// A slot is one whatever the cost, so no default cost is too large for a concurrency limit.
func TestAnyCostTakesASlot(t *testing.T) {
	if l := oneLimit(t, "algorithm: concurrency, limit: 2, ttl: 1m, default_cost: 50"); l.DefaultCost != 50 {
		t.Errorf("default cost %d, want 50", l.DefaultCost)
	}
	refused(t, "limits: [{name: a, algorithm: fixed_window, limit: 2, window: 1m, default_cost: 50}]")
}

// A change of what the state means starts it afresh, and a change of numbers keeps it.
func TestWhichChangesKeepTheState(t *testing.T) {
	const (
		token   = "algorithm: token_bucket, rate: 10/s, key: [tenant, user]"
		sliding = "algorithm: sliding_window, limit: 10, window: 1m, key: [user]"
		day     = "algorithm: fixed_window, limit: 10, period: day, key: [user]"
		slots   = "algorithm: concurrency, limit: 10, ttl: 1m, key: [user]"
	)
	key := func(settings string) string {
		rules := parse(t, "limits: [{name: a, "+settings+"}]").Rules
		q := limit.Query{Limit: "a", Attributes: limit.Attributes{{Name: "tenant", Value: "t"}, {Name: "user", Value: "u"}}}
		p, err := rules.Find(&q)
		if err != nil {
			t.Fatal(err)
		}
		charge, err := p.Address(&q, nil)
		if err != nil {
			t.Fatal(err)
		}
		return charge.Key
	}
	tests := []struct {
		old, new string
		keeps    bool
	}{
		{token, token + ", burst: 20, initial: empty, unit: tokens, default_cost: 5, shadow: true, on_redis_failure: open", true},
		{token, "refill: {every: 1s, tokens: 5}, key: [tenant, user]", true},
		{token, token + ", state: string", false},
		{token, token + ", colocate: [tenant]", false},
		{token, "rate: 10/s, key: [user, tenant]", false},
		{token, "algorithm: leaky_bucket, rate: 10/s, key: [tenant, user]", false},
		{sliding, "algorithm: sliding_window, limit: 5000000000, window: 60s, key: [user]", true},
		{sliding, "algorithm: sliding_window, limit: 10, window: 2m, key: [user]", false},
		{sliding, "algorithm: fixed_window, limit: 10, window: 1m, key: [user]", false},
		{day, day + ", timezone: UTC", true},
		{day, day + ", timezone: Europe/Paris", false},
		{day, "algorithm: fixed_window, limit: 10, period: week, key: [user]", false},
		{day, "algorithm: fixed_window, limit: 10, window: 1d, key: [user]", false},
		{slots, "algorithm: concurrency, limit: 20, ttl: 2m, key: [user]", true},
	}
	for _, tt := range tests {
		if was, is := key(tt.old), key(tt.new); (was == is) != tt.keeps {
			t.Errorf("from %s\nto   %s\nkey %s became %s, want it kept: %t", tt.old, tt.new, was, is, tt.keeps)
		}
	}
}

func TestLives(t *testing.T) {
	const limits = "\nlimits: [{name: a, rate: 10/s}]"
	tests := []struct {
		text           string
		ticket, repeat time.Duration
		secret         string
	}{
		{"", time.Hour, time.Minute, ""},
		{"tickets: {secret_file: /s}", time.Hour, time.Minute, "/s"},
		{"tickets: {ttl: 90m, secret_file: /s}\nrequest_id_ttl: 250ms", 90 * time.Minute, 250 * time.Millisecond, "/s"},
	}
	for _, tt := range tests {
		c := parse(t, tt.text+limits)
		if c.Rules.TicketTTL != tt.ticket || c.Rules.RequestIDTTL != tt.repeat || c.SecretFile != tt.secret {
			t.Errorf("%q: tickets %v, request ids %v, secret %q", tt.text, c.Rules.TicketTTL, c.Rules.RequestIDTTL, c.SecretFile)
		}
		if keys := config.NeedsRestart(parse(t, limits), c); tt.secret == "" && len(keys) > 0 || slices.Contains(keys, "tickets.ttl") {
			t.Errorf("%q needs a restart for %q", tt.text, keys)
		}
	}
}

// The built-in policy for language models asks four limits of one slot, whichever the tenant.
func TestBuiltinModelPolicy(t *testing.T) {
	q := limit.Query{Policy: "llm", Attributes: limit.Attributes{{Name: "tenant", Value: "acme"}}, Costs: []limit.UnitCost{{Unit: "tokens", Amount: 1200}}}
	p, err := config.Builtin().Rules.Find(&q)
	if err != nil {
		t.Fatal(err)
	}
	var keys limit.Keys
	charges, err := p.Resolve(&q, nil, &keys, nil)
	keys.Name(charges)
	if err != nil {
		t.Fatal(err)
	}
	var costs []int64
	for _, c := range charges {
		costs = append(costs, c.Cost)
		if !strings.HasPrefix(c.Key, "rl:{acme}:") {
			t.Errorf("key %s is not in the slot of its tenant", c.Key)
		}
	}
	if want := []int64{1, 1200, 1, 1200}; !slices.Equal(costs, want) {
		t.Errorf("costs %v, want %v", costs, want)
	}
}
