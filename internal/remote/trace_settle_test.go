package remote

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// ticketOf returns the ticket of an allowed decision, as a client would hold it; nil when there is
// nothing to settle.
func ticketOf(r *limit.Request, d *limit.Decision) *limit.Ticket {
	if d.Err != nil || !d.Allowed || d.ID == "" {
		return nil
	}
	t := &limit.Ticket{ID: d.ID, Expires: d.Expires}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Allowed && v.Known {
			t.Charges = append(t.Charges, r.Charges[i])
			t.Marks = append(t.Marks, v.Mark)
		}
	}
	if len(t.Charges) == 0 {
		return nil
	}
	return t
}

// settle runs the script that settles at w.now.
func (w *world) settle(s *limit.Settlement) (limit.Settled, error) {
	var c call
	c.packSettlement(w.now, s, func(time.Time) int64 { return 0 })
	answer, again, err := unpackSettled(w.run(w.settler, &c), s)
	if again != 0 {
		w.t.Fatalf("the settlement was left alone: %d", again)
	}
	return answer, err
}

// settleBoth settles in Redis and in memory, and returns the answer, which must not differ.
func (w *world) settleBoth(s *limit.Settlement) (limit.Settled, error) {
	w.t.Helper()
	got, gotErr := w.settle(s)
	want, wantErr := w.memory.SettleAt(w.now, s)
	same := got.Done == want.Done && got.At == want.At && slices.Equal(got.Verdicts, want.Verdicts)
	if !sameError(gotErr, wantErr) || gotErr == nil && !same {
		w.t.Fatalf("settlement %d of %v of %+v at %d: Redis and memory differ\n%s\nredis  %+v, %v\nmemory %+v, %v",
			s.Act, s.Actual, s.Ticket, w.now, settingsOf(s.Ticket.Charges), got, gotErr, want, wantErr)
	}
	return got, gotErr
}

// sameError reports whether two errors are of one kind, with one text.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	for _, kind := range []error{limit.ErrExpired, limit.ErrWrongType} {
		if errors.Is(a, kind) != errors.Is(b, kind) {
			return false
		}
	}
	var invalid *limit.InvalidError
	return errors.As(a, &invalid) == errors.As(b, &invalid) && a.Error() == b.Error()
}

// settleSomething settles a ticket in one of the ways that there are, the latest one more often.
func (w *world) settleSomething() {
	if len(w.tickets) == 0 {
		return
	}
	n := len(w.tickets) - 1
	if w.rng.IntN(3) > 0 {
		n = w.rng.IntN(len(w.tickets))
	}
	s := &limit.Settlement{Act: limit.Act(1 + w.rng.IntN(3)), Ticket: w.tickets[n]}
	if s.Act == limit.Finish {
		for i := range s.Ticket.Charges {
			s.Actual = append(s.Actual, w.actual(&s.Ticket.Charges[i]))
		}
	}
	answer, err := w.settleBoth(s)
	var invalid *limit.InvalidError
	switch {
	case errors.As(err, &invalid):
		w.seen["too deep"]++
	case err != nil:
		w.seen["expired"]++
	case s.Act == limit.Renew:
		w.seen["renewed"]++
		s.Ticket.Expires = max(s.Ticket.Expires, answer.At+w.log(1, 1e9))
	default:
		w.seen[map[limit.Act]string{limit.Finish: "finished", limit.GiveBack: "given back"}[s.Act]] += int(flag(answer.Done))
		w.seen[map[limit.Act]string{limit.Finish: "finished before", limit.GiveBack: "not given back"}[s.Act]] += int(flag(!answer.Done))
	}
}

// actual returns what a charge costs in the end.
func (w *world) actual(c *limit.Charge) int64 {
	if c.Settings.Algorithm == limit.ConcurrencyAlgorithm {
		return 0
	}
	switch w.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return c.Cost
	case 2:
		return w.log(1, limit.MaxNumber)
	case 3, 4:
		return c.Cost + w.log(1, max(2, float64(c.Cost)))
	default:
		return w.rng.Int64N(c.Cost + 1)
	}
}

// change gives a limit new numbers; its algorithm and its span stay, as those of a key do.
func (w *world) change(l *limit.Limit) { l.Settings = w.other(l) }

func (w *world) other(l *limit.Limit) limit.Settings {
	for {
		s, err := w.settings(&l.Settings)
		if err == nil && l.Settings.Hold > 0 {
			s, err = s.Leased(l.Settings.Hold)
		}
		if err == nil {
			return s
		}
	}
}

// settings returns new settings of the same algorithm and span: rates from one a day to 1e9/s, limits
// up to 1e12. It is an error when they do not go together.
func (w *world) settings(old *limit.Settings) (limit.Settings, error) {
	number := w.log(1, 1e12)
	if w.rng.IntN(2) == 0 {
		number = w.log(1, 20)
	}
	span := old.Window.Micros
	if span == 0 {
		span = w.log(1000, 1e12)
	}
	switch old.Algorithm {
	case limit.ConcurrencyAlgorithm:
		if w.calm {
			return limit.NewConcurrency(w.log(1, 12), w.log(1e4, 1e6))
		}
		return limit.NewConcurrency(w.log(1, 30), w.log(1, 1e10))
	case limit.SlidingWindowLogAlgorithm:
		return limit.NewSlidingWindowLog(number, span)
	case limit.SlidingWindowAlgorithm:
		return limit.NewSlidingWindow(number, span)
	case limit.FixedWindowAlgorithm:
		if old.Window.Period != 0 {
			return limit.NewCalendarWindow(number, old.Window.Period, old.Window.Zone)
		}
		if old.Window.Micros == 0 && w.rng.IntN(2) == 0 {
			return limit.NewCalendarWindow(number, limit.Period(1+w.rng.IntN(3)), w.zone())
		}
		return limit.NewFixedWindow(number, span)
	case limit.LeakyBucketLogAlgorithm:
		return limit.NewLeakyBucketLog(w.rate(), number)
	}
	bucket, err := w.bucket(number, old.Algorithm == limit.LeakyBucketAlgorithm)
	return limit.Settings{Algorithm: old.Algorithm, Bucket: bucket}, err
}

func (w *world) bucket(burst int64, leaky bool) (limit.TokenBucket, error) {
	initial := burst
	if !leaky && w.rng.IntN(3) == 0 {
		initial = w.rng.Int64N(burst + 1)
	}
	if !leaky && w.rng.IntN(4) == 0 {
		return limit.NewDiscreteBucket(w.log(1, 1e6), w.log(1, 1e9), burst, initial)
	}
	return limit.NewTokenBucket(w.rate(), burst, initial)
}

func (w *world) rate() limit.Rate {
	intervals := []string{"1d", "7h", "1m", "1s", "30s", "13ms", "1us"}
	text := fmt.Sprintf("%d/%s", w.log(1, 1e9), intervals[w.rng.IntN(len(intervals))])
	if w.rng.IntN(3) == 0 {
		text = fmt.Sprintf("%d.%d/s", w.log(1, 1e4), w.log(1, 999))
	}
	rate, err := limit.ParseRate(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return rate.Rate
}

func (w *world) zone() *time.Location {
	names := []string{"UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu"}
	zone, err := time.LoadLocation(names[w.rng.IntN(len(names))])
	if err != nil {
		w.t.Fatal(err)
	}
	return zone
}
