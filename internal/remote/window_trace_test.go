package remote

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// windowWorld is one random trace over fixed, calendar and sliding windows, asked and settled through
// the scripts on a real Redis and through local.Memory, at times that the test chooses.
type windowWorld struct {
	rig
	limits  []*limit.Limit
	wait    int64           // the retry-after of the last denial
	stored  map[string]bool // the keys that Redis holds; every TTL was taken from them
	tickets []*limit.Ticket
	ids     int
}

// windowZones have changes of the clocks of all kinds in 2025 and 2026, and none.
var windowZones = []string{"Europe/Paris", "America/New_York", "Africa/Cairo", "America/Havana", "Asia/Kathmandu", "Australia/Lord_Howe"}

func newWindowWorld(t *testing.T, conn *redistest.Conn, seed uint64) *windowWorld {
	begin := time.Date(2025, time.Month(1+seed%20), 20, 12, 0, 0, 0, time.UTC)
	w := &windowWorld{rig: newRig(t, conn, seed, 8, begin.UnixMicro()), stored: map[string]bool{}}
	zone, err := time.LoadLocation(windowZones[w.rng.IntN(len(windowZones))])
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []limit.Window{
		{Micros: w.log(1, 1e6)}, {Micros: w.log(1e6, 1e13)}, {Period: limit.Day}, {Period: limit.Week}, {Period: limit.Month},
		{Micros: w.log(1, 1e6), Units: 1}, {Micros: w.log(1e6, 1e13), Units: 1},
	} {
		l := &limit.Limit{Name: "l" + strconv.Itoa(i), Unit: limit.RequestsUnit, State: limit.StateForm(w.rng.IntN(2))}
		l.Shadow = w.rng.IntN(4) == 0
		kind.Zone = zone
		l.Settings.Window = kind
		w.change(l)
		w.limits = append(w.limits, l)
	}
	return w
}

// change gives a limit of the same window another number.
func (w *windowWorld) change(l *limit.Limit) {
	for {
		number := w.log(1, 1e15)
		if w.rng.IntN(2) == 0 {
			number = w.rng.Int64N(20)
		}
		var s limit.Settings
		var err error
		switch old := &l.Settings.Window; {
		case old.Period != 0:
			s, err = limit.NewCalendarWindow(number, old.Period, old.Zone)
		case old.Units != 0:
			s, err = limit.NewSlidingWindow(number, old.Micros)
		default:
			s, err = limit.NewFixedWindow(number, old.Micros)
		}
		if err == nil {
			l.Settings = s
			return
		}
	}
}

// pause lets time pass, or steps the clock.
func (w *windowWorld) pause() {
	switch w.rng.IntN(14) {
	case 0, 1:
		w.now += w.log(1, 1e6)
	case 2, 3:
		w.now += w.log(1, 1e11)
	case 4:
		w.now += w.log(1, 3e12) // weeks
	case 5:
		back := w.now - w.log(1, 2e12)
		w.dropExpired()
		w.now = back
	case 6, 7:
		w.now += w.wait
	case 8:
		w.now += max(0, w.wait-1)
	case 9, 10:
		l := w.limits[w.rng.IntN(len(w.limits))]
		w.now += w.rng.Int64N(max(1, l.Settings.Window.Micros))
	}
	w.wait = 0
}

// dropExpired drops what has expired in both stores, before the clock steps back.
func (w *windowWorld) dropExpired() {
	w.rig.dropExpired()
	maps.DeleteFunc(w.stored, func(key string, _ bool) bool {
		_, alive := w.dies[key]
		return !alive
	})
}

// run runs a script at w.now. It keeps each key's time to live, which must not run in real time, and
// drops keys at random once they have outlived theirs.
func (w *windowWorld) run(script string, c *call) string {
	for _, key := range c.keys {
		if dies, ok := w.dies[key]; ok && w.now >= dies && w.rng.IntN(2) == 0 {
			w.do("DEL", key)
			delete(w.stored, key)
		}
	}
	w.do("MULTI")
	w.do(append(append([]string{"EVALSHA", script, strconv.Itoa(len(c.keys))}, c.keys...), string(c.args))...)
	for _, key := range c.keys {
		w.do("PTTL", key)
		w.do("PERSIST", key)
	}
	replies := w.do("EXEC").([]any)
	text, ok := replies[0].(string)
	if !ok {
		w.t.Fatalf("the script failed: %v", replies[0])
	}
	for i, key := range c.keys {
		ttl := replies[1+2*i].(int64)
		if ttl == -1 && !w.stored[key] {
			w.t.Fatalf("%s has no time to live", key)
		}
		if ttl >= 0 {
			w.stored[key] = true
			w.dies[key] = w.now + (ttl+500)/1000*1000
		}
	}
	return text
}

func (w *windowWorld) cost(s *limit.Settings) int64 {
	switch w.rng.IntN(7) {
	case 0:
		return 0
	case 1:
		return s.Window.Limit
	case 2:
		return s.Window.Limit + w.log(1, 10)
	default:
		return min(s.Window.Limit, w.log(1, max(2, float64(s.Window.Limit))))
	}
}

// requests makes a few, often on the same keys, some of which may be settled.
func (w *windowWorld) requests() []limit.Request {
	requests := make([]limit.Request, 1+w.rng.IntN(4))
	for i := range requests {
		for _, n := range w.rng.Perm(len(w.limits))[:1+w.rng.IntN(3)] {
			l := w.limits[n]
			settings := l.Settings // a copy: equal settings need not be the same ones
			requests[i].Charges = append(requests[i].Charges, limit.Charge{
				Limit: l, Settings: &settings, Cost: w.cost(&settings), Key: fmt.Sprintf("rl:{%s:%d}", l.Name, w.rng.IntN(2)),
			})
		}
		if w.rng.IntN(2) == 0 {
			w.ids++
			requests[i].ID = "id" + strconv.Itoa(w.ids)
			requests[i].Life = time.Duration(w.log(1e6, 3e12)) * time.Microsecond
		}
	}
	return requests
}

func unclocked(time.Time) int64 { return 0 }

// ask asks both stores, and compares verdict by verdict.
func (w *windowWorld) ask(step int) {
	requests := w.requests()
	var c call
	c.pack(w.now, requests, unclocked)
	text := w.run(w.decider, &c)
	got, want := make([]*limit.Decision, len(requests)), make([]*limit.Decision, len(requests))
	for i := range requests {
		got[i], want[i] = new(limit.Decision), new(limit.Decision)
	}
	alone, err := unpack(text, requests, got)
	if err != nil || len(alone.expired)+len(alone.outside) > 0 {
		w.t.Fatalf("step %d: left alone %v, error %v", step, alone, err)
	}
	w.memory.DecideAt(w.now, requests, want)
	for i := range requests {
		if !slices.Equal(got[i].Verdicts, want[i].Verdicts) {
			w.t.Fatalf("step %d, request %d of %d at %d: Redis and memory differ\ncharges %+v\nredis  %+v\nmemory %+v",
				step, i, len(requests), w.now, requests[i].Charges, got[i].Verdicts, want[i].Verdicts)
		}
		for j := range got[i].Verdicts {
			v := &got[i].Verdicts[j]
			w.wait = max(w.wait, v.RetryAfter.Microseconds())
			if v.Remaining > v.Settings.Window.Limit || v.ResetAfter < 0 {
				w.t.Fatalf("step %d: %+v", step, *v)
			}
			w.alive(step, &requests[i].Charges[j])
		}
		w.keep(&requests[i], want[i])
	}
}

// alive checks that the key's state lives no longer than its window and the next.
func (w *windowWorld) alive(step int, c *limit.Charge) {
	window := &c.Settings.Window
	most := window.Micros
	switch {
	case window.Period != 0:
		most = window.Boundaries(w.now)[2] - w.now
	case c.Settings.Algorithm == limit.SlidingWindowAlgorithm:
		most *= 2
	}
	if dies, ok := w.dies[c.Key]; ok && dies > w.now+most+1000 {
		w.t.Fatalf("step %d: %s lives for %dµs more, the window is %+v", step, c.Key, dies-w.now, *window)
	}
}

// keep keeps a ticket of what was charged, or might have been.
func (w *windowWorld) keep(r *limit.Request, d *limit.Decision) {
	if r.ID == "" {
		return
	}
	t := &limit.Ticket{ID: r.ID, Expires: d.Expires}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Allowed {
			t.Charges, t.Marks = append(t.Charges, r.Charges[i]), append(t.Marks, v.Mark)
		}
	}
	if len(t.Charges) > 0 {
		w.tickets = append(w.tickets, t)
	}
}

// settle settles one of the tickets in both stores, perhaps not for the last time.
func (w *windowWorld) settle(step int) {
	if len(w.tickets) == 0 {
		return
	}
	i := w.rng.IntN(len(w.tickets))
	s := &limit.Settlement{Act: limit.Finish, Ticket: w.tickets[i]}
	if w.rng.IntN(8) == 0 {
		s.Act = []limit.Act{limit.Renew, limit.GiveBack}[w.rng.IntN(2)]
	}
	for j := range s.Ticket.Charges {
		charged := s.Ticket.Charges[j].Cost
		s.Actual = append(s.Actual, []int64{0, charged, charged / 2, charged + 1, w.log(1, 1e6), 2 * charged, limit.MaxNumber}[w.rng.IntN(7)])
	}
	if w.rng.IntN(4) > 0 {
		w.tickets = slices.Delete(w.tickets, i, i+1)
	}
	var c call
	c.packSettlement(w.now, s, unclocked)
	text := w.run(w.settler, &c)
	got, again, err := unpackSettled(text, s)
	want, wantErr := w.memory.SettleAt(w.now, s)
	same := got.Done == want.Done && slices.Equal(got.Verdicts, want.Verdicts)
	if again != 0 || fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !same {
		w.t.Fatalf("step %d at %d: Redis and memory differ\nsettle %+v of %+v\nredis  %+v, %v\nmemory %+v, %v", step, w.now, s, s.Ticket, got, err, want, wantErr)
	}
}

// TestWindowScriptsAgreeWithMemory compares the scripts on a real Redis with the arithmetic in Go,
// verdict by verdict and settlement by settlement: levels, waits, resets and marks to the microsecond.
func TestWindowScriptsAgreeWithMemory(t *testing.T) {
	conn := dial(t)
	traces, steps := 10, 1000
	if !testing.Short() {
		traces, steps = 20, 4000
	}
	for seed := range traces {
		w := newWindowWorld(t, conn, uint64(seed))
		for step := range steps {
			w.pause()
			if w.rng.IntN(30) == 0 {
				w.change(w.limits[w.rng.IntN(len(w.limits))])
			}
			if w.rng.IntN(4) == 0 {
				w.settle(step)
			} else {
				w.ask(step)
			}
		}
	}
}
