package remote

import (
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/lua"
)

// TestOutsideTheBoundaries: when the clock has left the periods whose boundaries came along, a call
// charges, settles and stores nothing.
func TestOutsideTheBoundaries(t *testing.T) {
	conn := dial(t)
	w := newWindowWorld(t, conn, 1)
	w.decider = w.do("SCRIPT", "LOAD", lua.Decide()).(string) // testHead knows no TIME
	w.settler = w.do("SCRIPT", "LOAD", lua.Settle()).(string)
	day, err := limit.NewCalendarWindow(5, limit.Day, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, Settings: day}
	charge := limit.Charge{Limit: l, Settings: &l.Settings, Key: "rl:{l:x}", Cost: 1}
	requests := []limit.Request{{ID: "id", Charges: []limit.Charge{charge}}}
	ticket := &limit.Ticket{ID: "id", Expires: math.MaxInt32 * 1_000_000, Charges: requests[0].Charges, Marks: []int64{0}}
	s := &limit.Settlement{Act: limit.Finish, Ticket: ticket, Actual: []int64{3}}
	for off, outside := range map[time.Duration]bool{0: false, -72 * time.Hour: true, 72 * time.Hour: true, 24 * time.Hour: false, -24 * time.Hour: false} {
		w.do("FLUSHDB")
		clock := func(at time.Time) int64 {
			if at.IsZero() {
				return 0
			}
			return at.Add(off).UnixMicro()
		}
		var c call
		c.pack(0, requests, clock)
		d := new(limit.Decision)
		alone, err := unpack(w.run(w.decider, &c), requests, []*limit.Decision{d})
		if err != nil || len(alone.outside) == 1 != outside || d.Allowed == outside && d.Tier == limit.TierNone != outside {
			t.Errorf("%v off: left alone %v, error %v, decision %+v", off, alone, err, d)
		}
		if end := day.Window.Boundaries(d.At)[2]; !outside && d.Verdicts[0].ResetAfter.Microseconds() != end-d.At {
			t.Errorf("%v off: at %d: got %+v, want the window to end at %d", off, d.At, d.Verdicts[0], end)
		}
		c.packSettlement(0, s, clock)
		_, again, err := unpackSettled(w.run(w.settler, &c), s)
		if err != nil || again == codeOutside != outside {
			t.Errorf("%v off: settled with %d, error %v", off, again, err)
		}
		if keys := w.do("KEYS", "*").([]any); len(keys) == 0 != outside {
			t.Errorf("%v off: keys %v", off, keys)
		}
	}
}

// one asks for a cost on the limit's only key, after so many µs, and returns the verdict.
func (w *windowWorld) one(l *limit.Limit, after, cost int64) limit.Verdict {
	w.now += after
	requests := []limit.Request{{ID: "id", Life: time.Hour, Charges: []limit.Charge{{Limit: l, Settings: &l.Settings, Key: "rl:{l:x}", Cost: cost}}}}
	var c call
	c.pack(w.now, requests, unclocked)
	d := new(limit.Decision)
	if _, err := unpack(w.run(w.decider, &c), requests, []*limit.Decision{d}); err != nil {
		w.t.Fatal(err)
	}
	w.keep(&requests[0], d)
	return d.Verdicts[0]
}

// TestGivenBackWholly: a sliding window of which all was given back is forgotten when it ends, not one
// window later, and the next charge begins a new grid.
func TestGivenBackWholly(t *testing.T) {
	conn := dial(t)
	w := newWindowWorld(t, conn, 1)
	sliding, err := limit.NewSlidingWindow(5, 60_000_000)
	if err != nil {
		t.Fatal(err)
	}
	l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, Settings: sliding}
	w.one(l, 0, 5)
	s := &limit.Settlement{Act: limit.Finish, Ticket: w.tickets[0], Actual: []int64{0}}
	w.now += 10_000_000
	var c call
	c.packSettlement(w.now, s, unclocked)
	if got, _, err := unpackSettled(w.run(w.settler, &c), s); err != nil || got.Verdicts[0].Remaining != 5 || got.Verdicts[0].ResetAfter != 0 {
		t.Errorf("got %+v, error %v", got, err)
	}
	if life := w.dies["rl:{l:x}"] - w.now; life != 50_000_000 {
		t.Errorf("the key lives for %dµs more, want 50s", life)
	}
	if v := w.one(l, 60_000_000, 1); v.ResetAfter != 2*time.Minute {
		t.Errorf("the next charge: got %+v, want a new grid", v)
	}
}

// TestWindowsHealTheirTimeToLive: a key that has lost its time to live gets it back with the next
// charge, and without one it counts as absent from its window's end on.
func TestWindowsHealTheirTimeToLive(t *testing.T) {
	conn := dial(t)
	fixed, err := limit.NewFixedWindow(2, 60_000_000)
	if err != nil {
		t.Fatal(err)
	}
	sliding, err := limit.NewSlidingWindow(2, 60_000_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, settings := range []limit.Settings{fixed, sliding} {
		for _, form := range []limit.StateForm{limit.HashState, limit.StringState} {
			w := newWindowWorld(t, conn, 1)
			l := &limit.Limit{Name: "l", Unit: limit.RequestsUnit, State: form, Settings: settings}
			w.one(l, 0, 1)
			clear(w.stored) // run has taken the time to live, and fails when the next charge does not bring it back
			w.one(l, 1_000_000, 1)
			life := settings.Window.Micros
			if settings.Algorithm == limit.SlidingWindowAlgorithm {
				life *= 2
			}
			if v := w.one(l, life-1_000_000, 2); !v.Allowed || v.Remaining != 0 {
				t.Errorf("%s, %s: a life after its window began: got %+v", settings.Algorithm, form, v)
			}
		}
	}
}
