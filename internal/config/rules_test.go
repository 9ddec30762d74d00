package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/limit"
)

// oneLimit parses a file with one limit of these settings and returns the limit.
func oneLimit(t *testing.T, settings string) *limit.Limit {
	t.Helper()
	return parse(t, "limits: [{name: a, "+settings+"}]").Rules.Limits[0]
}

func TestDefaults(t *testing.T) {
	c := parse(t, "redis: {addrs: [127.0.0.1:6379]}\nlimits: [{name: a, rate: 10/s}]")
	if want := (config.Listen{HTTP: "127.0.0.1:7400", Admin: "127.0.0.1:7402", UnixMode: 0o660}); c.Listen != want {
		t.Errorf("Listen = %+v, want %+v", c.Listen, want)
	}
	if want := (config.Redis{Addr: "127.0.0.1:6379", Mode: config.RedisAuto, KeyPrefix: "rl", Timeout: 50 * time.Millisecond}); *c.Redis != want {
		t.Errorf("Redis = %+v, want %+v", *c.Redis, want)
	}
	if want := (config.Breaker{Failures: 5, Window: 10 * time.Second, OpenFor: 2 * time.Second}); c.Breaker != want {
		t.Errorf("Breaker = %+v, want %+v", c.Breaker, want)
	}
	if want := (config.Local{MaxKeys: 100_000, Recheck: time.Second}); c.Local != want {
		t.Errorf("Local = %+v, want %+v", c.Local, want)
	}
	if c.Nodes != 1 || c.ShutdownTimeout != 10*time.Second || c.Headers != (config.Headers{}) ||
		c.SecretFile != "" || c.OnRedisFailure != limit.FailLocal || len(c.Hashed) != 0 || len(c.Warnings) != 0 {
		t.Errorf("the rest of the defaults: %+v", c)
	}
	l := c.Rules.Limits[0]
	if l.Settings.Algorithm != limit.TokenBucketAlgorithm || l.State != limit.HashState || l.Unit != "requests" || l.DefaultCost != 1 ||
		l.Key != nil || l.OnRedisFailure != limit.FailLocal || l.Shadow {
		t.Errorf("defaults of a limit: %+v", l)
	}
	if embedded := parse(t, "limits: [{name: a, rate: 10/s}]"); embedded.Redis != nil {
		t.Errorf("Redis without a block = %+v, want nil", embedded.Redis)
	}
}

func TestEverySettingArrives(t *testing.T) {
	c, err := config.Load("testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := (config.Listen{HTTP: "[::1]:7500", Unix: "/run/tidegate/api.sock", UnixMode: 0o600, Admin: "localhost:0", Metrics: ":7403"}); c.Listen != want {
		t.Errorf("Listen = %+v, want %+v", c.Listen, want)
	}
	want := config.Redis{
		Addr: "redis.internal:6380", Mode: config.RedisSingle, Username: "tidegate", PasswordFile: "/etc/tidegate/password",
		TLS:       &config.TLS{CAFile: "ca.pem", CertFile: "client.pem", KeyFile: "client.key", ServerName: "redis"},
		KeyPrefix: "app:rl", Timeout: 20 * time.Millisecond,
	}
	if !reflect.DeepEqual(*c.Redis, want) {
		t.Errorf("Redis = %+v, want %+v", *c.Redis, want)
	}
	if c.Breaker != (config.Breaker{Failures: 3, Window: time.Minute, OpenFor: 500 * time.Millisecond}) ||
		c.Local != (config.Local{MaxKeys: 5000, Recheck: 250 * time.Millisecond}) || c.Nodes != 3 || c.ShutdownTimeout != 30*time.Second ||
		c.Headers != (config.Headers{XRateLimit: true}) || c.SecretFile != "/etc/tidegate/secret" ||
		c.OnRedisFailure != limit.FailOpen || !reflect.DeepEqual(c.Hashed, []string{"api_key"}) {
		t.Errorf("the rest of the settings: %+v", c)
	}
	perKey, tokens := c.Rules.Limits[0], c.Rules.Limits[1]
	if perKey.State != limit.StringState || perKey.OnRedisFailure != limit.FailClosed || !reflect.DeepEqual(perKey.Key, []string{"tenant", "api_key"}) ||
		!reflect.DeepEqual(perKey.Colocate, []string{"tenant"}) {
		t.Errorf("limit per-key: %+v", perKey)
	}
	if tokens.Unit != "tokens" || tokens.DefaultCost != 50 || !tokens.Shadow || tokens.OnRedisFailure != limit.FailOpen ||
		!reflect.DeepEqual(tokens.When, []limit.Match{{Attribute: "model", Pattern: "gpt-*"}, {Attribute: "region", Pattern: "eu"}}) {
		t.Errorf("limit tokens: %+v", tokens)
	}
	if got := c.Rules.Policies[0]; got.Name != "chat" || !reflect.DeepEqual(got.Limits, []*limit.Limit{perKey, tokens}) {
		t.Errorf("policy: %+v", got)
	}
}

// A derived burst is the number of the rate rounded down, but never nothing.
func TestBurstLeftOut(t *testing.T) {
	tests := []struct {
		settings string
		want     int64
	}{
		{"rate: 100/s", 100}, {"rate: 2/s", 2}, {"rate: 2.9/s", 2}, {"rate: 0.5/m", 1}, {"rate: 300/30s", 300}, {"rate: 1/36525d", 1},
		{"rate: 999999999999999/s", 999999999999999}, {"rate: 0/s", 0},
		{"refill: {every: 100ms, tokens: 10}", 10},
		{"rate: 100/s, burst: 7", 7}, {"rate: 100/s, burst: 0", 0}, {"refill: {every: 1s, tokens: 10}, burst: 5", 5},
	}
	for _, tt := range tests {
		if got := oneLimit(t, tt.settings).Settings.Capacity(); got != tt.want {
			t.Errorf("%s: burst %d, want %d", tt.settings, got, tt.want)
		}
	}
}

// Whole numbers survive exactly up to 2^53, and everything that is not one is refused.
func TestWholeNumbers(t *testing.T) {
	for _, text := range []string{"0", "1", "25001", "2147483648", "3000000000", "123451234512345", "999999999999999", "9007199254740992"} {
		if got := fmt.Sprint(oneLimit(t, "rate: 1000000000/s, burst: "+text).Settings.Capacity()); got != text {
			t.Errorf("burst %s came back as %s", text, got)
		}
	}
	for _, text := range []string{"9007199254740993", "18446744073709551617", "-5", "-0", "1e3", "1.5", "1.0", "0x10", "0o17", "017", "1_000", "+1", "'5'", ".inf", ".nan", "true", "five"} {
		got := refused(t, "limits: [{name: a, rate: 10/s, burst: "+text+"}]")
		if !strings.HasPrefix(got, "test.yaml:1:39: burst is ") || strings.Contains(got, "\n") {
			t.Errorf("burst %s: %s", text, got)
		}
	}
}

// 0 means that nothing passes, however it is written, and a negative number is refused.
func TestZeroPassesNothing(t *testing.T) {
	for _, settings := range []string{"rate: 0/s", "rate: 0.0/s", "rate: 0/s, burst: 10", "rate: 10/s, burst: 0", "refill: {every: 1s, tokens: 0}, burst: 10"} {
		bucket := oneLimit(t, settings).Settings.Bucket
		if _, wait, _ := bucket.Decide(limit.BucketState{}, 1, 1); wait != limit.Never {
			t.Errorf("%s: a request waits %dµs, want never", settings, wait)
		}
	}
	for _, settings := range []string{"rate: -5/s", "rate: 5/s, burst: -5", "refill: {every: 1s, tokens: -5}", "refill: {every: -1s, tokens: 5}", "rate: 5/0s", "refill: {every: 0s, tokens: 5}"} {
		refused(t, "limits: [{name: a, "+settings+"}]")
	}
}

func TestInitial(t *testing.T) {
	for text, want := range map[string]int64{"full": 5, "empty": 0, "0": 0, "3": 3, "5": 5} {
		if got := oneLimit(t, "rate: 10/s, burst: 5, initial: "+text).Settings.Bucket.Initial; got != want {
			t.Errorf("initial %s: %d, want %d", text, got, want)
		}
	}
}

func TestDefaultCost(t *testing.T) {
	for settings, want := range map[string]int64{"rate: 10/s": 1, "rate: 10/s, unit: requests": 1, "rate: 10/s, unit: tokens": 0,
		"rate: 10/s, unit: tokens, default_cost: 5": 5, "rate: 10/s, default_cost: 0": 0} {
		if got := oneLimit(t, settings).DefaultCost; got != want {
			t.Errorf("%s: default cost %d, want %d", settings, got, want)
		}
	}
}

// What an override leaves out stays as the limit has it written; a burst that is written nowhere
// follows from the rate in force.
func TestOverridesFillIn(t *testing.T) {
	tests := []struct{ limit, override, same string }{
		{"rate: 10/s, burst: 50", "rate: 20/s", "rate: 20/s, burst: 50"},
		{"rate: 10/s", "rate: 20/s", "rate: 20/s, burst: 20"},
		{"rate: 10/s, burst: 50", "burst: 70", "rate: 10/s, burst: 70"},
		{"rate: 10/s, initial: empty", "burst: 70", "rate: 10/s, burst: 70, initial: 0"},
		{"rate: 10/s, burst: 50", "initial: 5", "rate: 10/s, burst: 50, initial: 5"},
		{"rate: 10/s, burst: 50", "refill: {every: 1s, tokens: 5}", "refill: {every: 1s, tokens: 5}, burst: 50"},
		{"refill: {every: 1s, tokens: 5}", "rate: 20/s", "rate: 20/s, burst: 20"},
		{"refill: {every: 1s, tokens: 5}", "burst: 9", "refill: {every: 1s, tokens: 5}, burst: 9"},
		{"rate: 10/s", "deny: true", "rate: 0/s"},
		{"rate: 0/s", "rate: 5/s", "rate: 5/s, burst: 5"},
	}
	for _, tt := range tests {
		l := oneLimit(t, tt.limit+", overrides: [{when: {user: a}, "+tt.override+"}]")
		if got, want := l.Overrides[0].Settings, oneLimit(t, tt.same).Settings; got != want || l.Overrides[0].Exempt {
			t.Errorf("%s on %s: %+v, want %+v", tt.override, tt.limit, got, want)
		}
	}
	if o := oneLimit(t, "rate: 10/s, overrides: [{when: {user: a}, exempt: true}]").Overrides[0]; !o.Exempt {
		t.Errorf("exempt: true gives %+v", o)
	}
}

// Each value of a key attribute is a bucket of its own, and a limit never reads another source.
func TestRulesResolve(t *testing.T) {
	c := parse(t, `
redis: {addrs: [127.0.0.1:6379], key_prefix: app}
attributes: {secret: {hash: true}}
limits:
  - name: a
    rate: 10/s
    key: [user, secret]
    when: {model: "gpt-*"}
policies:
  chat: {limits: [a]}
`)
	resolve := func(user, model string) []limit.Charge {
		q := limit.Query{Policy: "chat", Attributes: limit.Attributes{{Name: "user", Value: user}, {Name: "secret", Value: "s3cr3t"}, {Name: "model", Value: model}}}
		p, err := c.Rules.Find(&q)
		if err != nil {
			t.Fatal(err)
		}
		var keys limit.Keys
		charges, err := p.Resolve(&q, limit.Secret("k"), &keys, nil)
		keys.Name(charges)
		if err != nil {
			t.Fatal(err)
		}
		return charges
	}
	one, other := resolve("u1", "gpt-5"), resolve("u2", "gpt-5")
	if len(one) != 1 || len(other) != 1 || one[0].Key == other[0].Key {
		t.Fatalf("charges of two users: %+v, %+v", one, other)
	}
	if key := one[0].Key; !strings.HasPrefix(key, "app:{a~") || strings.Contains(key, "s3cr3t") {
		t.Errorf("key %q, want it under the prefix app, with the secret hashed", key)
	}
	if got := resolve("u1", "llama"); len(got) != 0 {
		t.Errorf("charges of a model that does not match: %+v", got)
	}
}

// A file may come from Windows or begin with a byte order mark; positions stay right.
func TestLineEnds(t *testing.T) {
	text := "\uFEFFlimits:\r\n  - name: ä\r\n    rate: 10/s # é\r\n    brust: 5\r\n"
	want := "test.yaml:2:11: a limit cannot be named \"ä\": write 1 to 64 of a-z, 0-9, dot, _ and -, beginning with a letter or digit, such as per-user\n" +
		"test.yaml:4:5: unknown key \"brust\": did you mean burst?"
	if got := refused(t, text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A thousand faults are a thousand lines: no problem hides another.
func TestAllProblemsAtOnce(t *testing.T) {
	var text strings.Builder
	text.WriteString("limits:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {name: l%d, rate: 10/s, brust: 5}\n", i)
	}
	if got := strings.Count(refused(t, text.String()), "unknown key"); got != 1000 {
		t.Errorf("%d problems, want 1000", got)
	}
}

// Two Builtins share nothing, and the demo limit gives two requests and then a denial.
func TestBuiltin(t *testing.T) {
	c := config.Builtin()
	if c.Redis != nil || len(c.Warnings) != 0 {
		t.Errorf("Redis = %+v, warnings %v; want the embedded store and no warnings", c.Redis, c.Warnings)
	}
	q := limit.Query{Limit: "demo", Key: "me", HasKey: true}
	p, err := c.Rules.Find(&q)
	if err != nil {
		t.Fatal(err)
	}
	var keys limit.Keys
	charges, err := p.Resolve(&q, nil, &keys, nil)
	keys.Name(charges)
	if err != nil || len(charges) != 1 {
		t.Fatalf("Resolve = %v, %v", charges, err)
	}
	const now = 1_000_000_000
	bucket := charges[0].Settings.Bucket
	var state limit.BucketState
	for i, want := range []int64{0, 0, 30_000_000} {
		next, wait, _ := bucket.Decide(state, now, charges[0].Cost)
		if wait != want {
			t.Errorf("request %d waits %dµs, want %d", i+1, wait, want)
		}
		state = bucket.Charge(next, charges[0].Cost)
	}
	if _, err := c.Rules.Find(&limit.Query{Policy: "chat"}); err != nil {
		t.Error(err)
	}
	if other := config.Builtin(); other == c || other.Rules.Limits[0] == c.Rules.Limits[0] {
		t.Error("two Builtins share limits")
	}
}
