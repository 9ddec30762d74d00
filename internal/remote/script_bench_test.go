package remote

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// BenchmarkServerTime reports the time that a call spends in Redis, from INFO commandstats, for every
// algorithm and for calls of one key and of 32, and the bytes that a key takes there.
func BenchmarkServerTime(b *testing.B) {
	server := redistest.Start(b)
	for _, l := range benchLimits(b) {
		for _, keys := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", l.Name, keys), func(b *testing.B) { benchServerTime(b, server, l, keys) })
		}
		b.Run(l.Name+"/denied", func(b *testing.B) { benchDenied(b, server, l) })
		b.Run(l.Name+"/finish", func(b *testing.B) { benchFinish(b, server, l) })
	}
}

// openBench returns a store on the server, which it empties.
func openBench(b *testing.B, server *redistest.Server) *Store {
	server.Do(b, "FLUSHALL")
	return connectBench(b, server)
}

func connectBench(b *testing.B, server *redistest.Server) *Store {
	store, err := New(Config{Addr: server.Socket(), Timeout: 10 * time.Second, KeyPrefix: "rl", Registry: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	return store
}

// reportTime reports the mean time of the calls since the statistics were reset.
func reportTime(b *testing.B, server *redistest.Server, keys int) {
	perCall := float64(server.CallTime(b, "evalsha").Nanoseconds()) / float64(server.Calls(b, "evalsha"))
	b.ReportMetric(perCall/1000, "redis-µs/call")
	b.ReportMetric(perCall/1000/float64(keys), "redis-µs/key")
}

// benchDenied asks for what is above the rest of a limit, of which one request has taken a little.
func benchDenied(b *testing.B, server *redistest.Server, l *limit.Limit) {
	store := openBench(b, server)
	settings := l.Settings
	if settings.Algorithm == limit.ConcurrencyAlgorithm {
		settings.Slots.Limit = 1
	}
	ask := func(cost int64, id string) limit.Decision {
		var d limit.Decision
		charge := limit.Charge{Limit: l, Settings: &settings, Key: "rl:{" + l.Name + "~000000:denied}", Cost: cost}
		if store.Decide(b.Context(), []limit.Request{{Charges: []limit.Charge{charge}, ID: id}}, []*limit.Decision{&d}); d.Err != nil {
			b.Fatal(d.Err)
		}
		return d
	}
	ask(min(10_000, settings.Capacity()), "first")
	server.Do(b, "CONFIG", "RESETSTAT")
	for b.Loop() {
		if d := ask(settings.Capacity(), ""); d.Verdicts[0].Allowed {
			b.Fatal("it was allowed")
		}
	}
	reportTime(b, server, 1)
}

// benchFinish settles tickets that have just been given, with another cost.
func benchFinish(b *testing.B, server *redistest.Server, l *limit.Limit) {
	store := openBench(b, server)
	charge := limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{" + l.Name + "~000000:finish}", Cost: 5}
	server.Do(b, "CONFIG", "RESETSTAT")
	var settling time.Duration
	n := 0
	for b.Loop() {
		d := new(limit.Decision)
		r := limit.Request{Charges: []limit.Charge{charge}, ID: fmt.Sprintf("%026d", n), Life: time.Minute}
		if store.Decide(b.Context(), []limit.Request{r}, []*limit.Decision{d}); d.Err != nil {
			b.Fatal(d.Err)
		}
		before := server.CallTime(b, "evalsha")
		ticket := &limit.Ticket{ID: d.ID, Expires: d.Expires, Charges: r.Charges, Marks: []int64{d.Verdicts[0].Mark}}
		settlement := &limit.Settlement{Act: limit.Finish, Ticket: ticket, Actual: []int64{4}, Life: time.Minute, Deadline: time.Now().Add(time.Minute)}
		if _, err := store.Settle(b.Context(), settlement); err != nil {
			b.Fatal(err)
		}
		settling += server.CallTime(b, "evalsha") - before
		n++
	}
	b.ReportMetric(float64(settling.Nanoseconds())/float64(n)/1000, "redis-µs/call")
}

// benchLimits are limits that deny nothing.
func benchLimits(b *testing.B) []*limit.Limit {
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1000}, 1_000_000_000, 1_000_000_000)
	if err != nil {
		b.Fatal(err)
	}
	must := func(s limit.Settings, err error) limit.Settings {
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	const many, minute = 100_000_000, 60_000_000
	var limits []*limit.Limit
	for _, form := range []limit.StateForm{limit.HashState, limit.StringState} {
		for _, s := range []limit.Settings{
			{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket},
			{Algorithm: limit.LeakyBucketAlgorithm, Bucket: bucket},
			must(limit.NewFixedWindow(many, minute)),
			must(limit.NewCalendarWindow(many, limit.Day, time.UTC)),
			must(limit.NewSlidingWindow(many, minute)),
		} {
			name := fmt.Sprint(s.Algorithm, "-", form)
			if s.Window.Period != 0 {
				name = fmt.Sprint("calendar-", form)
			}
			limits = append(limits, &limit.Limit{Name: name, State: form, Settings: s})
		}
	}
	for _, s := range []limit.Settings{
		must(limit.NewSlidingWindowLog(many, minute)),
		must(limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: 1000}, many)),
		must(limit.NewConcurrency(many, minute)),
	} {
		limits = append(limits, &limit.Limit{Name: s.Algorithm.String(), Settings: s})
	}
	return limits
}

// benchServerTime keeps Redis busy with several callers, each with keys and a store of its own, since one
// store would put what they ask into one call.
func benchServerTime(b *testing.B, server *redistest.Server, l *limit.Limit, keys int) {
	openBench(b, server) // empties it
	server.Do(b, "CONFIG", "RESETSTAT")
	var callers atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		caller := callers.Add(1)
		store := connectBench(b, server)
		requests := make([]limit.Request, keys)
		decisions := make([]*limit.Decision, keys)
		for i := range requests {
			key := fmt.Sprintf("rl:{%s~000000:%d-%d}", l.Name, caller, i)
			requests[i].Charges = []limit.Charge{{Limit: l, Settings: &l.Settings, Key: key, Cost: 1}}
			decisions[i] = new(limit.Decision)
		}
		for n := 0; pb.Next(); n++ {
			if l.Settings.Algorithm == limit.ConcurrencyAlgorithm {
				for i := range requests {
					requests[i].ID = fmt.Sprintf("%025d", n)
				}
			}
			if store.Decide(b.Context(), requests, decisions); decisions[0].Err != nil {
				b.Error(decisions[0].Err)
			}
		}
	})
	reportTime(b, server, keys)
	if bytes, ok := server.Do(b, "MEMORY", "USAGE", fmt.Sprintf("rl:{%s~000000:1-0}", l.Name)).(int64); ok {
		b.ReportMetric(float64(bytes), "bytes")
	}
}
