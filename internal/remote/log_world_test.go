package remote

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// logWorld is one random trace: logs whose settings change on the way, asked and settled through the
// scripts on a real Redis and through local.Memory, at times that the test chooses.
type logWorld struct {
	rig
	limits  []*limit.Limit
	tickets []*limit.Ticket
	ids     int
	wait    int64 // the retry-after of the last denial
}

func newLogWorld(t *testing.T, conn *redistest.Conn, seed uint64) *logWorld {
	w := &logWorld{rig: newRig(t, conn, seed, 8, 1_780_000_000_000_000)}
	for i := range 4 {
		l := &limit.Limit{Name: "l" + strconv.Itoa(i), Unit: limit.RequestsUnit, Shadow: w.rng.IntN(4) == 0}
		if i%2 == 0 {
			l.Settings.Algorithm, l.Settings.Window.Micros = limit.SlidingWindowLogAlgorithm, w.log(1, 1e13)
		}
		w.limits = append(w.limits, l)
		w.change(l)
	}
	return w
}

// run runs a script at w.now over what c holds, and keeps each key's time to live, which must not run in
// real time; it returns those, in ms, -1 for a key that was not written.
func (w *logWorld) run(script string, c *call) (reply string, lives map[string]int64) {
	w.t.Helper()
	for i, key := range c.keys {
		if dies, ok := w.dies[key]; ok && w.now >= dies && (c.kinds[i] == noteKind || w.rng.IntN(2) == 0) {
			w.do("DEL", key)
		}
	}
	w.do("MULTI")
	w.do(append(append([]string{"EVALSHA", script, strconv.Itoa(len(c.keys))}, c.keys...), string(c.args))...)
	for _, key := range c.keys {
		w.do("PTTL", key)
		w.do("PERSIST", key)
	}
	replies := w.do("EXEC").([]any)
	reply, ok := replies[0].(string)
	if !ok {
		w.t.Fatalf("the script failed: %v", replies[0])
	}
	lives = map[string]int64{}
	for i, key := range c.keys {
		lives[key] = -1
		if ttl := replies[1+2*i].(int64); ttl >= 0 {
			lives[key] = (ttl + 500) / 1000
			w.dies[key] = w.now + lives[key]*1000
		}
	}
	return reply, lives
}

func noClock(time.Time) int64 { return 0 }

func (w *logWorld) ask(requests []limit.Request) ([]*limit.Decision, map[string]int64) {
	w.t.Helper()
	var c call
	c.pack(w.now, requests, noClock)
	text, lives := w.run(w.decider, &c)
	decisions := newDecisions(len(requests))
	if alone, err := unpack(text, requests, decisions); err != nil || len(alone.expired)+len(alone.outside) > 0 {
		w.t.Fatalf("unpack: left alone %v, error %v", alone, err)
	}
	return decisions, lives
}

func newDecisions(n int) []*limit.Decision {
	decisions := make([]*limit.Decision, n)
	for i := range decisions {
		decisions[i] = new(limit.Decision)
	}
	return decisions
}

// decideBoth asks both stores and compares them.
func (w *logWorld) decideBoth(requests []limit.Request) []*limit.Decision {
	w.t.Helper()
	got, lives := w.ask(requests)
	want := newDecisions(len(requests))
	w.memory.DecideAt(w.now, requests, want)
	resets, charged := map[string]time.Duration{}, map[string]bool{}
	for i, r := range requests {
		if !slices.Equal(got[i].Verdicts, want[i].Verdicts) || !slices.EqualFunc(got[i].Lists, want[i].Lists, slices.Equal[[]limit.Listed]) {
			w.t.Fatalf("request %d of %d at %d: Redis and memory differ\ncharges %+v\nredis  %+v\nmemory %+v\nlists %v\nlists %v",
				i, len(requests), w.now, r.Charges, got[i].Verdicts, want[i].Verdicts, got[i].Lists, want[i].Lists)
		}
		got[i].Conclude()
		ticket := &limit.Ticket{ID: r.ID, Expires: w.now + r.Life.Microseconds()}
		for j, v := range got[i].Verdicts {
			resets[r.Charges[j].Key] = v.ResetAfter
			if v.RetryAfter > 0 {
				w.wait = v.RetryAfter.Microseconds()
			}
			if got[i].Allowed && v.Allowed {
				charged[r.Charges[j].Key] = charged[r.Charges[j].Key] || r.Charges[j].Cost > 0
				ticket.Charges, ticket.Marks = append(ticket.Charges, r.Charges[j]), append(ticket.Marks, v.Mark)
			}
		}
		if r.ID != "" && len(ticket.Charges) > 0 {
			w.tickets = append(w.tickets, ticket)
		}
	}
	for key, reset := range resets {
		w.checkLife(key, lives[key], charged[key], reset)
	}
	return got
}

// checkLife: what was charged lives until it is as if unused, to the millisecond.
func (w *logWorld) checkLife(key string, life int64, written bool, reset time.Duration) {
	w.t.Helper()
	if want := (reset.Microseconds() + 999) / 1000; written && life < 0 || life >= 0 && life != max(1, want) {
		w.t.Fatalf("%s at %d: a life of %dms, and reset after %s", key, w.now, life, reset)
	}
}

// settleBoth settles in both stores and compares them.
func (w *logWorld) settleBoth(s *limit.Settlement) limit.Settled {
	w.t.Helper()
	var c call
	c.packSettlement(w.now, s, noClock)
	text, lives := w.run(w.settler, &c)
	got, again, gotErr := unpackSettled(text, s)
	want, wantErr := w.memory.SettleAt(w.now, s)
	if again != 0 || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || gotErr == nil && !reflect.DeepEqual(got, want) {
		w.t.Fatalf("settled at %d: Redis and memory differ\nticket %+v\nactual %v\nredis  %+v, %v\nmemory %+v, %v", w.now, s.Ticket, s.Actual, got, gotErr, want, wantErr)
	}
	for i, v := range got.Verdicts {
		key := s.Ticket.Charges[i].Key
		if v.ResetAfter > 0 {
			w.checkLife(key, lives[key], false, v.ResetAfter)
		}
	}
	return got
}

func startLogWorld(t *testing.T, seed uint64) *logWorld {
	t.Helper()
	server := redistest.Start(t)
	conn, err := redistest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newLogWorld(t, conn, seed)
}
