package remote_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// bench is a store on a real Redis, with a way to ask it.
type bench struct {
	t        *testing.T
	store    *remote.Store
	registry *prometheus.Registry
}

func newBench(t *testing.T, cfg remote.Config) *bench {
	t.Helper()
	b := &bench{t: t, registry: prometheus.NewRegistry()}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	cfg.KeyPrefix, cfg.Registry, cfg.Logger = "rl", b.registry, slog.New(slog.DiscardHandler)
	store, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	b.store = store
	return b
}

// direct is a Guard without a breaker.
func direct(call func() error) error { return call() }

func noLimits() []*limit.Limit { return nil }

// hourly is a limit of one token an hour over the given burst: nothing refills in a test.
func hourly(name string, burst int64, state limit.StateForm) *limit.Limit {
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 3_600_000_000}, burst, burst)
	if err != nil {
		panic(err) // a bug of the test
	}
	return &limit.Limit{
		Name: name, Algorithm: limit.TokenBucketAlgorithm, State: state, Unit: limit.RequestsUnit,
		Settings: limit.Settings{Bucket: bucket},
	}
}

func charge(l *limit.Limit, key string, cost int64) limit.Charge {
	return limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + ":" + key + "}", Cost: cost}
}

// ask decides one request, to be answered within timeout.
func (b *bench) ask(timeout time.Duration, charges ...limit.Charge) (limit.Decision, error) {
	d := new(limit.Decision)
	requests := []limit.Request{{Charges: charges, Deadline: time.Now().Add(timeout)}}
	err := b.store.Decide(context.Background(), requests, []*limit.Decision{d})
	d.Conclude()
	return *d, err
}

func (b *bench) mustAsk(charges ...limit.Charge) limit.Decision {
	b.t.Helper()
	d, err := b.ask(10*time.Second, charges...)
	if err != nil || d.Err != nil {
		b.t.Fatalf("Decide: %v, %v", err, d.Err)
	}
	return d
}

func (b *bench) counter(name string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

func forms(t *testing.T, server *redistest.Server, run func(t *testing.T, state limit.StateForm)) {
	for _, state := range []limit.StateForm{limit.HashState, limit.StringState} {
		server.Do(t, "FLUSHALL")
		t.Run(state.String(), func(t *testing.T) { run(t, state) })
	}
}

func TestDecideIsExactAcrossStores(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		stores := []*bench{newBench(t, remote.Config{Addr: server.Addr()}), newBench(t, remote.Config{Addr: server.Socket()}), newBench(t, remote.Config{Addr: server.Addr()})}
		l := hourly("exact", 100, state)
		var mu sync.Mutex
		allowed := 0
		var group sync.WaitGroup
		for caller := range 30 {
			group.Go(func() {
				for range 20 {
					d := stores[caller%3].mustAsk(charge(l, state.String(), 1))
					if d.Allowed {
						mu.Lock()
						allowed++
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		if allowed != 100 {
			t.Errorf("600 requests through 3 stores on a burst of 100: %d passed", allowed)
		}
	})
}

func TestDecideIsAllOrNothing(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		wide, narrow, shadow := hourly("wide", 10, state), hourly("narrow", 1, state), hourly("shadow", 1, state)
		shadow.Shadow = true
		three := func(cost int64) []limit.Charge {
			return []limit.Charge{charge(wide, "a", cost), charge(narrow, "a", cost), charge(shadow, "a", cost)}
		}
		if d := b.mustAsk(three(1)...); !d.Allowed {
			t.Fatalf("first request: %+v", d)
		}
		for range 3 {
			if d := b.mustAsk(three(1)...); d.Allowed || d.Verdicts[0].Remaining != 9 || !d.Verdicts[0].Allowed {
				t.Fatalf("a request that one limit denies: %+v", d)
			}
		}
		d := b.mustAsk(charge(wide, "a", 1), charge(shadow, "a", 1))
		if !d.Allowed || d.Verdicts[0].Remaining != 8 || d.Verdicts[1].Allowed || d.Verdicts[1].Remaining != 0 {
			t.Errorf("a request that only a shadow limit denies: %+v", d)
		}
	})
}

// TestOneCallCarriesMany: later requests of a call see what earlier ones took, a bad key fails
// its own requests only, and all of it is one round trip.
func TestOneCallCarriesMany(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		l := hourly("many", 2, state)
		bad := charge(l, "bad", 1)
		server.Do(t, "LPUSH", bad.Key, "not ours")
		keys := []limit.Charge{charge(l, "k", 1), bad, charge(l, "k", 1), charge(l, "k", 1), charge(l, "other", 2)}
		requests := make([]limit.Request, len(keys))
		decisions := make([]*limit.Decision, len(keys))
		for i, c := range keys {
			requests[i].Charges, decisions[i] = []limit.Charge{c}, new(limit.Decision)
		}
		b.mustAsk(charge(l, "warm", 1))
		before := server.Calls(t, "evalsha")
		if err := b.store.Decide(t.Context(), requests, decisions); err != nil {
			t.Fatal(err)
		}
		if calls := server.Calls(t, "evalsha") - before; calls != 1 {
			t.Errorf("5 requests took %d calls", calls)
		}
		for i, want := range []bool{true, false, true, false, true} {
			decisions[i].Conclude()
			if i == 1 {
				if !errors.Is(decisions[i].Err, limit.ErrWrongType) {
					t.Errorf("request on a list: error %v, want ErrWrongType", decisions[i].Err)
				}
				continue
			}
			if decisions[i].Err != nil || decisions[i].Allowed != want {
				t.Errorf("request %d: allowed %t, error %v; want %t", i, decisions[i].Allowed, decisions[i].Err, want)
			}
		}
		if got := server.Do(t, "LRANGE", bad.Key, "0", "-1"); fmt.Sprint(got) != "[not ours]" {
			t.Errorf("the foreign key was overwritten: %v", got)
		}
	})
}

func TestForeignValuesAreLeftAlone(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr()})
	tests := []struct {
		name  string
		state limit.StateForm
		write []string // the key stands for %
	}{
		{"a string under a hash", limit.HashState, []string{"SET", "%", "5"}},
		{"another hash", limit.HashState, []string{"HSET", "%", "colour", "red"}},
		{"a hash with a field too few", limit.HashState, []string{"HSET", "%", "tokens", "5", "rem", "0", "at", "1", "til", "9007199254740992"}},
		{"a hash with text", limit.HashState, []string{"HSET", "%", "tokens", "x", "rem", "0", "at", "1", "til", "9007199254740992", "micros", "1"}},
		{"a fraction", limit.HashState, []string{"HSET", "%", "tokens", "1.5", "rem", "0", "at", "1", "til", "9007199254740992", "micros", "1"}},
		{"not a number", limit.HashState, []string{"HSET", "%", "tokens", "nan", "rem", "0", "at", "1", "til", "9007199254740992", "micros", "1"}},
		{"infinity", limit.HashState, []string{"HSET", "%", "tokens", "inf", "rem", "0", "at", "1", "til", "9007199254740992", "micros", "1"}},
		{"a remainder too large", limit.HashState, []string{"HSET", "%", "tokens", "1", "rem", "7", "at", "1", "til", "9007199254740992", "micros", "7"}},
		{"a hash under a string", limit.StringState, []string{"HSET", "%", "tokens", "1"}},
		{"a list under a string", limit.StringState, []string{"LPUSH", "%", "x"}},
		{"an empty string", limit.StringState, []string{"SET", "%", ""}},
		{"other text", limit.StringState, []string{"SET", "%", "1 2 3"}},
		{"too many numbers", limit.StringState, []string{"SET", "%", "1 0 1 9007199254740992 1 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := charge(hourly("foreign", 5, tt.state), strings.ReplaceAll(tt.name, " ", "-"), 1)
			for i := range tt.write {
				tt.write[i] = strings.ReplaceAll(tt.write[i], "%", c.Key)
			}
			server.Do(t, tt.write...)
			before := server.Do(t, "DUMP", c.Key)
			d, err := b.ask(5*time.Second, c)
			if err != nil || !errors.Is(d.Err, limit.ErrWrongType) {
				t.Errorf("Decide: %v, decision error %v; want ErrWrongType", err, d.Err)
			}
			if after := server.Do(t, "DUMP", c.Key); after != before {
				t.Error("the foreign value was changed")
			}
		})
	}
}

func TestEveryKeyHasATimeToLive(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		fast := hourly("fast", 1, state)
		fast.Settings.Bucket, _ = limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1}, 1, 1)
		empty := hourly("empty", 3, state)
		empty.Settings.Bucket, _ = limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 3_600_000_000}, 3, 0)
		slow := hourly("slow", 3, state)
		b.mustAsk(charge(fast, "a", 1), charge(empty, "a", 0), charge(slow, "a", 2))
		if got := server.Do(t, "EXISTS", charge(empty, "a", 0).Key); got != int64(0) {
			t.Errorf("a peek made a key")
		}
		b.mustAsk(charge(empty, "a", 1))
		for _, tt := range []struct {
			limit    *limit.Limit
			low, top int64 // ms
		}{{slow, 7_190_000, 7_200_000}, {empty, 97_190_000, 97_200_000}} {
			if ttl := server.Do(t, "PTTL", charge(tt.limit, "a", 0).Key).(int64); ttl < tt.low || ttl > tt.top {
				t.Errorf("%s: time to live %d ms, want %d to %d", tt.limit.Name, ttl, tt.low, tt.top)
			}
		}
		// A key that lost its time to live, as through PERSIST, gets it back with the next charge.
		server.Do(t, "PERSIST", charge(slow, "a", 0).Key)
		b.mustAsk(charge(slow, "a", 1))
		if ttl := server.Do(t, "PTTL", charge(slow, "a", 0).Key).(int64); ttl <= 0 {
			t.Errorf("after PERSIST and a charge the time to live is %d", ttl)
		}
	})
}

func TestScriptFlushLosesAndDoublesNothing(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr()})
	first, second := hourly("first", 50, limit.HashState), hourly("second", 50, limit.StringState)
	for i := range int64(20) {
		if i%3 == 0 {
			server.Do(t, "SCRIPT", "FLUSH")
		}
		d := b.mustAsk(charge(first, "a", 1), charge(second, "a", 2))
		if d.Verdicts[0].Remaining != 49-i || d.Verdicts[1].Remaining != 48-2*i {
			t.Fatalf("after %d charges: %+v", i+1, d.Verdicts)
		}
	}
}

// TestLostReplyChargesOnce: Redis runs the call, its reply never comes. The caller gets an error
// in time, the charge is made once and counted as in doubt, and nothing is sent again.
func TestLostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 300 * time.Millisecond})
	l := hourly("lost", 50, limit.HashState)
	b.mustAsk(charge(l, "a", 1))
	proxy.DropReplies(true)
	start := time.Now()
	_, err := b.ask(300*time.Millisecond, charge(l, "a", 1))
	var failure *limit.StoreError
	if !errors.As(err, &failure) || failure.Failure != limit.FailureTimeout || !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("error %v, want a timeout", err)
	}
	if waited := time.Since(start); waited > 5*time.Second {
		t.Errorf("waited for %v", waited)
	}
	proxy.DropReplies(false)
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 48 {
		t.Errorf("after a call with a lost reply %d are left, want 48", d.Verdicts[0].Remaining)
	}
	proxy.CutReplyAfter(3)
	if _, err := b.ask(time.Second, charge(l, "a", 1)); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("reply cut short: error %v", err)
	}
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 47 {
		t.Errorf("after a reply cut short %d are left, want 47", d.Verdicts[0].Remaining)
	}
	if got := b.counter("tidegate_ambiguous_total"); got != 2 {
		t.Errorf("ambiguous_total is %v, want 2", got)
	}
}

// TestFrozenRedisChargesNothingLate: what waited in front of a frozen Redis is charged nothing
// once it runs again.
func TestFrozenRedisChargesNothingLate(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr(), Timeout: 100 * time.Millisecond})
	l := hourly("frozen", 50, limit.HashState)
	b.mustAsk(charge(l, "a", 1))
	server.Pause()
	for range 3 {
		if _, err := b.ask(50*time.Millisecond, charge(l, "a", 1)); !errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("frozen Redis: error %v", err)
		}
	}
	server.Resume()
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 49 {
		t.Errorf("after the thaw %d are left, want 49", d.Verdicts[0].Remaining)
	}
}

func TestFailures(t *testing.T) {
	server := redistest.Start(t)
	refused := redistest.NewProxy(t, server.Addr())
	refused.Refuse(true)
	stub := func(reply string) string {
		return redistest.NewStub(t, func([]string) string { return reply }).Addr()
	}
	hello := func(version string) string {
		return redistest.NewStub(t, func(command []string) string {
			if strings.EqualFold(command[0], "HELLO") {
				return "*4\r\n" + redistest.Bulk("server") + redistest.Bulk("redis") + redistest.Bulk("version") + redistest.Bulk(version)
			}
			if strings.EqualFold(command[0], "TIME") {
				return "*2\r\n" + redistest.Bulk("1780000000") + redistest.Bulk("0")
			}
			return "+OK\r\n"
		}).Addr()
	}
	tests := []struct {
		name string
		addr string
		want limit.Failure
	}{
		{"refused", refused.Addr(), limit.FailureConnection},
		{"silent", stub(""), limit.FailureTimeout},
		{"loading", stub("-LOADING Redis is loading the dataset in memory\r\n"), limit.FailureLoading},
		{"busy", stub("-BUSY Redis is busy running a script\r\n"), limit.FailureBusy},
		{"masterdown", stub("-MASTERDOWN Link with MASTER is down\r\n"), limit.FailureMasterDown},
		{"no password given", stub("-NOAUTH Authentication required.\r\n"), limit.FailureAuth},
		{"Redis 5", stub("-ERR unknown command `HELLO`, with args beginning with:\r\n"), limit.FailureUnsupported},
		{"Redis 6.0", hello("6.0.20"), limit.FailureUnsupported},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, remote.Config{Addr: tt.addr, Timeout: 200 * time.Millisecond})
			_, err := b.ask(200*time.Millisecond, charge(hourly("failing", 5, limit.HashState), "a", 1))
			var failure *limit.StoreError
			if !errors.As(err, &failure) || failure.Failure != tt.want {
				t.Errorf("error %v, want the failure %q", err, tt.want)
			}
			if b.counter("tidegate_redis_errors_total") == 0 {
				t.Error("redis_errors_total does not count it")
			}
		})
	}
}

// TestServerRefusals: what a real Redis refuses, by kind; nothing is charged, and it works again
// when the cause is gone.
func TestServerRefusals(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		l := hourly("refusals", 50, state)
		b.mustAsk(charge(l, "a", 1))
		refusals := []struct {
			want     limit.Failure
			set, end []string
		}{
			{limit.FailureMemory, []string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
			{limit.FailureReadOnly, []string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
			{limit.FailureMasterDown, []string{"CONFIG", "SET", "replica-serve-stale-data", "no"}, []string{"CONFIG", "SET", "replica-serve-stale-data", "yes"}},
		}
		for _, r := range refusals {
			if r.want == limit.FailureMasterDown {
				server.Do(t, "REPLICAOF", "127.0.0.1", "1")
			}
			server.Do(t, r.set...)
			_, err := b.ask(5*time.Second, charge(l, "a", 1))
			server.Do(t, r.end...)
			server.Do(t, "REPLICAOF", "NO", "ONE")
			var failure *limit.StoreError
			if !errors.As(err, &failure) || failure.Failure != r.want {
				t.Errorf("%v: error %v, want the failure %q", r.set, err, r.want)
			}
			if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 49 {
				t.Errorf("after %v %d are left, want 49", r.set, d.Verdicts[0].Remaining)
			}
		}
	})
}

func TestMissingRightsAreLoud(t *testing.T) {
	server := redistest.Start(t, redistest.WithUsers(
		"full on >pw ~rl:* -@all +eval +evalsha +time +mget +set +hmget +hset +pexpire +exists +del +get +ping +hello +script|load",
		"least on >pw ~rl:* -@all +eval +evalsha +time +mget +set +hmget +hset +pexpire +exists +ping",
		"noeval on >pw ~rl:* +@all -eval -evalsha",
		"notime on >pw ~rl:* +@all -time",
		"nokeys on >pw ~other:* +@all",
	))
	password := func() (string, error) { return "pw", nil }
	for user, works := range map[string]bool{"full": true, "least": true, "noeval": false, "notime": false, "nokeys": false} {
		t.Run(user, func(t *testing.T) {
			b := newBench(t, remote.Config{Addr: server.Addr(), Username: user, Password: password})
			d, err := b.ask(5*time.Second, charge(hourly("rights", 50, limit.HashState), user, 1), charge(hourly("rights2", 50, limit.StringState), user, 1))
			if works {
				if err != nil || d.Err != nil || !d.Allowed {
					t.Errorf("Decide: %v, %+v", err, d)
				}
				return
			}
			var failure *limit.StoreError
			if !errors.As(err, &failure) || failure.Failure != limit.FailureAuth {
				t.Errorf("error %v, want the failure auth", err)
			}
		})
	}
}

func TestRotatedPasswordIsPickedUp(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("old"))
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	b := newBench(t, remote.Config{Addr: server.Addr(), Password: func() (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}})
	c := charge(hourly("rotated", 50, limit.HashState), "a", 1)
	b.mustAsk(c)
	server.Do(t, "CONFIG", "SET", "requirepass", "new")
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	failed := 0
	for range 20 { // connections that the kill has closed fail once each
		if _, err := b.ask(time.Second, c); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("a wrong password was not noticed")
	}
	write("new")
	b.mustAsk(c)
}

func TestTLS(t *testing.T) {
	certs := redistest.NewCertificates(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	authority, err := os.ReadFile(certs.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	pair, err := tls.LoadX509KeyPair(certs.ClientCertFile, certs.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	c := charge(hourly("tls", 50, limit.HashState), "a", 1)
	good := newBench(t, remote.Config{Addr: server.Addr(), TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}})
	good.mustAsk(c)
	untrusting := newBench(t, remote.Config{Addr: server.Addr(), TLS: &tls.Config{Certificates: []tls.Certificate{pair}, ServerName: "localhost"}})
	if _, err := untrusting.ask(time.Second, c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server of an unknown authority: %v", err)
	}
}

// TestSecretIsShared: sidecars on one Redis agree on one secret, also when they start at once,
// and keep it when they restart.
func TestSecretIsShared(t *testing.T) {
	server := redistest.Start(t)
	var stores []*bench
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		stores = append(stores, b)
		group.Go(func() { b.store.Run(ctx, direct, noLimits) })
	}
	agreed := func() bool {
		for _, b := range stores {
			if b.store.Reachable() != nil || string(b.store.Secret()) != string(stores[0].store.Secret()) {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(10 * time.Second); !agreed(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stores do not agree on a secret")
		}
	}
	cancel()
	group.Wait()
	fixed := newBench(t, remote.Config{Addr: server.Addr(), Secret: limit.Secret("0123456789abcdef")})
	if string(fixed.store.Secret()) != "0123456789abcdef" {
		t.Error("a configured secret is not used")
	}
}

func TestMetricsAreLint(t *testing.T) {
	b := newBench(t, remote.Config{Addr: "127.0.0.1:1"})
	problems, err := testutil.GatherAndLint(b.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}
