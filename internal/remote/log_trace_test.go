package remote

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// change gives a limit other settings; a window stays as long as it is.
func (w *logWorld) change(l *limit.Limit) {
	for {
		most := w.log(1, 30)
		switch w.rng.IntN(8) {
		case 0:
			most = 0
		case 1:
			most = w.log(100, 5000)
		case 2:
			most = w.log(1, 9e15)
		case 3:
			most = limit.MaxNumber
		}
		if l.Settings.Algorithm == limit.SlidingWindowLogAlgorithm {
			settings, err := limit.NewSlidingWindowLog(most, l.Settings.Window.Micros)
			if err != nil {
				w.t.Fatal(err)
			}
			l.Settings = settings
			return
		}
		text := fmt.Sprintf("%d/%dus", w.log(1, 1e12), w.log(1, 1e12))
		if w.rng.IntN(2) == 0 {
			text = fmt.Sprintf("%d.%d/s", w.log(1, 1e6), w.log(1, 999))
		}
		rate, err := limit.ParseRate(text)
		if err != nil {
			continue // too slow
		}
		if settings, err := limit.NewLeakyBucketLog(rate.Rate, most); err == nil {
			l.Settings = settings
			return
		}
	}
}

// pause lets time pass, or steps the clock.
func (w *logWorld) pause() {
	span := max(2, float64(w.limits[w.rng.IntN(len(w.limits))].Settings.Span().Microseconds()))
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		w.now += w.log(1, span)
	case 3:
		w.now += w.log(1, 1e12) // weeks
	case 4:
		w.now += w.log(1, 100)
	case 5:
		w.dropExpired()
		w.now -= w.log(1, 2*span)
	case 6, 7:
		w.now += w.wait
	case 8:
		w.now += max(0, w.wait-1)
	}
	w.now = min(max(w.now, 1_000_000_000_000_000), 4_000_000_000_000_000)
	w.wait = 0
}

func (w *logWorld) cost(most int64) int64 {
	switch w.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return most
	case 2:
		return min(limit.MaxNumber, most+w.log(1, 10))
	default:
		return min(most, w.log(1, max(2, float64(most)/float64(1+w.rng.IntN(8)))))
	}
}

// requests are a batch: some ask for the same again and again.
func (w *logWorld) requests() []limit.Request {
	requests := make([]limit.Request, 1+w.rng.IntN(4))
	for i := range requests {
		r := &requests[i]
		r.Life, r.List = time.Duration(w.log(1, 1e12))*time.Microsecond, w.rng.IntN(4) == 0
		for _, n := range w.rng.Perm(len(w.limits))[:1+w.rng.IntN(3)] {
			l := w.limits[n]
			settings := l.Settings // a copy: equal settings need not be the same ones
			r.Charges = append(r.Charges, limit.Charge{
				Limit: l, Settings: &settings, Cost: w.cost(settings.Capacity()),
				Key: fmt.Sprintf("rl:{%s:%d}", l.Name, w.rng.IntN(2)),
			})
		}
	}
	if w.rng.IntN(10) == 0 {
		again := requests[0]
		again.Charges = slices.Clone(again.Charges)
		for i := range again.Charges {
			again.Charges[i].Cost = min(again.Charges[i].Cost, w.log(1, 4))
		}
		for range w.log(1, 200) {
			requests = append(requests, again)
		}
	}
	for i := range requests {
		if w.rng.IntN(2) == 0 {
			w.ids++
			requests[i].ID = fmt.Sprint("id ", w.ids)
		}
	}
	return requests
}

// settleOne settles a ticket, some of them twice.
func (w *logWorld) settleOne() {
	if len(w.tickets) == 0 {
		return
	}
	i := max(0, len(w.tickets)-1-w.rng.IntN(min(len(w.tickets), 12)))
	s := &limit.Settlement{Act: limit.Finish, Ticket: w.tickets[i]}
	if w.rng.IntN(4) > 0 {
		w.tickets = slices.Delete(w.tickets, i, i+1)
	}
	if w.rng.IntN(6) == 0 {
		s.Act = limit.GiveBack
	}
	for _, c := range s.Ticket.Charges {
		actual := c.Cost
		switch w.rng.IntN(8) {
		case 0:
			actual = 0
		case 1, 2, 3:
			actual = w.rng.Int64N(c.Cost + 1)
		case 4, 5:
			actual = min(limit.MaxNumber, c.Cost+w.log(1, max(2, float64(c.Settings.Capacity()))))
		case 6:
			if w.rng.IntN(3) == 0 {
				actual = limit.MaxNumber - w.rng.Int64N(3)
			}
		}
		s.Actual = append(s.Actual, actual)
	}
	w.settleBoth(s)
}

// TestLogScriptsAgreeWithMemory compares the logs' scripts on a real Redis with the arithmetic in Go:
// verdicts, marks, lists, settlements and times to live.
func TestLogScriptsAgreeWithMemory(t *testing.T) {
	conn := startLogWorld(t, 0).conn
	worlds, steps := 10, 600
	if !testing.Short() {
		worlds, steps = 24, 3000
	}
	for seed := range worlds {
		w := newLogWorld(t, conn, uint64(seed))
		for range steps {
			w.pause()
			if w.rng.IntN(30) == 0 {
				w.change(w.limits[w.rng.IntN(len(w.limits))])
			}
			if w.rng.IntN(3) == 0 {
				w.settleOne()
			} else {
				w.decideBoth(w.requests())
			}
		}
	}
}
