package remote_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

func noLimits() []*limit.Limit { return nil }

// hourly is a limit of one token an hour over the given burst: nothing refills in a test.
func hourly(name string, burst int64, state limit.StateForm) *limit.Limit {
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 3_600_000_000}, burst, burst)
	if err != nil {
		panic(err) // a bug of the test
	}
	return &limit.Limit{
		Name: name, State: state, Unit: limit.RequestsUnit,
		Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
	}
}

func charge(l *limit.Limit, key string, cost int64) limit.Charge {
	return limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + ":" + key + "}", Cost: cost}
}

// ask decides one request, to be answered within timeout.
func (b *bench) ask(timeout time.Duration, charges ...limit.Charge) (limit.Decision, error) {
	d := new(limit.Decision)
	requests := []limit.Request{{Charges: charges, Deadline: time.Now().Add(timeout)}}
	b.store.Decide(context.Background(), requests, []*limit.Decision{d})
	if errors.Is(d.Err, limit.ErrUnavailable) {
		return *d, d.Err
	}
	d.Conclude()
	return *d, nil
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
		b.store.Decide(t.Context(), requests, decisions)
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

// numbers are packed as a state in the String form is.
func numbers(n ...float64) string {
	var b []byte
	for _, n := range n {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
	}
	return string(b)
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
		{"text of a state's length", limit.StringState, []string{"SET", "%", strings.Repeat("1", 40)}},
		{"a number too many", limit.StringState, []string{"SET", "%", numbers(1, 0, 1, 1<<53, 1, 1)}},
		{"a packed fraction", limit.StringState, []string{"SET", "%", numbers(1.5, 0, 1, 1<<53, 1)}},
		{"packed not a number", limit.StringState, []string{"SET", "%", numbers(1, 0, 1, math.NaN(), 1)}},
		{"packed infinity", limit.StringState, []string{"SET", "%", numbers(math.Inf(-1), 0, 1, 1<<53, 1)}},
		{"a packed remainder too large", limit.StringState, []string{"SET", "%", numbers(1, 7, 1, 1<<53, 7)}},
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

// TestFullCallOutlivesWhoFillsIt: the questions that fill a call go with others, and may wait for less time than those.
func TestFullCallOutlivesWhoFillsIt(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const wait, delay = 10 * time.Second, 500 * time.Millisecond
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: wait})
	c := charge(hourly("full", 10_000, limit.HashState), "u1", 1)
	ask := func(questions int, wait time.Duration) (err error) {
		requests, decisions := make([]limit.Request, questions), make([]*limit.Decision, questions)
		for i := range requests {
			requests[i] = limit.Request{Charges: []limit.Charge{c}, Deadline: time.Now().Add(wait)}
			decisions[i] = new(limit.Decision)
		}
		b.store.Decide(context.Background(), requests, decisions)
		for _, d := range decisions {
			err = errors.Join(err, d.Err)
		}
		return err
	}
	var group sync.WaitGroup
	some := func(n int) {
		for range n {
			group.Go(func() {
				if err := ask(1, wait); err != nil {
					t.Errorf("one that had time left: %v", err)
				}
			})
			time.Sleep(delay / 50)
		}
	}
	proxy.SetDelay(delay / 20)
	some(4) // further ones leave beside the first, so that several connections are ready
	group.Wait()
	for range 20 { // so that it is known how long a call takes, and none leaves beside another for being slow
		some(1)
		group.Wait()
	}
	proxy.SetDelay(delay)
	some(1)
	for range 4 {
		group.Go(func() {
			if err := ask(1, wait); err != nil {
				t.Errorf("one that had time left: %v", err)
			}
		})
	}
	time.Sleep(delay / 50)
	if err := ask(1000, delay/2); err == nil {
		t.Error("those that fill the call have their answers in less time than it takes")
	}
	group.Wait()
}
