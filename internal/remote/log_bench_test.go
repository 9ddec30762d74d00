package remote

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/lua"
)

// BenchmarkLogServerTime reports the time that a call on one key of a log spends in Redis, from INFO
// commandstats, and the bytes of such a key. The log holds as many entries as its limit, one a second, so that
// with each second one no longer counts.
func BenchmarkLogServerTime(b *testing.B) {
	server := redistest.Start(b)
	for _, most := range []int64{100, 1000, 10_000} {
		window, err := limit.NewSlidingWindowLog(most, most*tick)
		if err != nil {
			b.Fatal(err)
		}
		bucket, err := limit.NewLeakyBucketLog(limit.Rate{Tokens: 1, Micros: tick}, most)
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range []limit.Settings{window, bucket} {
			for _, what := range []string{"granted", "granted with an id", "denied", "peek", "last settled", "first settled"} {
				b.Run(fmt.Sprintf("%s/%d/%s", s.Algorithm, most, what), func(b *testing.B) { benchLog(b, server, &s, what) })
			}
		}
	}
}

const tick = 1_000_000 // µs

func benchLog(b *testing.B, server *redistest.Server, s *limit.Settings, what string) {
	server.Do(b, "FLUSHALL")
	decide, settle := server.Do(b, "SCRIPT", "LOAD", lua.Decide()).(string), server.Do(b, "SCRIPT", "LOAD", lua.Settle()).(string)
	charge := limit.Charge{Limit: &limit.Limit{Name: "l"}, Settings: s, Key: "rl:{l~000000:a}", Cost: 1}
	now, count := int64(1_780_000_000_000_000), 0
	var marks []int64
	var c call
	run := func(script string) string {
		return server.Do(b, append(append([]string{"EVALSHA", script, strconv.Itoa(len(c.keys))}, c.keys...), string(c.args))...).(string)
	}
	ask := func(cost int64) {
		charge.Cost = cost
		requests := []limit.Request{{Charges: []limit.Charge{charge}}}
		if what != "granted" {
			requests[0].ID, requests[0].Life = fmt.Sprintf("%026d", len(marks)), time.Hour
		}
		c.pack(now, requests, noClock)
		d := newDecisions(1)
		if _, err := unpack(run(decide), requests, d); err != nil {
			b.Fatal(err)
		}
		if cost == 1 {
			marks = append(marks, d[0].Verdicts[0].Mark)
		}
	}
	finish := func(i int) {
		charge.Cost = 1
		count++
		ticket := &limit.Ticket{ID: fmt.Sprintf("%026d", i), Expires: now + tick, Charges: []limit.Charge{charge}, Marks: []int64{marks[i]}}
		c.packSettlement(now, &limit.Settlement{Act: limit.Finish, Ticket: ticket, Actual: []int64{int64(2 + count%2)}}, noClock)
		run(settle)
		server.Do(b, "DEL", ticket.Marker())
	}
	for range s.Capacity() {
		if s.Algorithm == limit.SlidingWindowLogAlgorithm {
			now += tick
		}
		ask(1)
	}
	held := server.Do(b, "MEMORY", "USAGE", charge.Key, "SAMPLES", "0").(int64)
	server.Do(b, "CONFIG", "RESETSTAT")
	for b.Loop() {
		switch what {
		case "denied":
			ask(s.Capacity() / 2)
		case "peek":
			ask(0)
		case "last settled":
			finish(len(marks) - 1)
		case "first settled":
			finish(1)
		default:
			now += tick
			ask(1)
		}
	}
	perCall := float64(server.CallTime(b, "evalsha").Nanoseconds()) / float64(server.Calls(b, "evalsha"))
	b.ReportMetric(perCall/1000, "redis-µs/call")
	b.ReportMetric(float64(held)/float64(s.Capacity()), "bytes/entry")
}
