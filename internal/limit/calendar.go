package limit

import (
	"math"
	"time"
)

// Period is a calendar period.
type Period uint8

// The periods. The zero Period is none.
const (
	Day  Period = iota + 1
	Week        // begins on Monday
	Month
)

var periodNames = [...]string{"none", "day", "week", "month"}

// String returns the period's name in the config.
func (p Period) String() string { return periodNames[p] }

// longest returns the time that is shown as the period's length.
func (p Period) longest() time.Duration {
	return time.Duration([...]int{0, 1, 7, 31}[p]) * 24 * time.Hour
}

// Boundaries returns when the period before the one that holds now begins, that one, the next, and the
// one after that, in µs since 1970.
//
// A period begins at the first instant at which its zone's clocks show its first date's 00:00 or later.
// So one whose midnight the clocks skip begins as they skip it, one whose midnight they show twice
// begins at the first, and a date that they go back to does not begin again. A date that the zone never
// had is no period.
func (w *Window) Boundaries(now int64) [4]int64 {
	// In seconds: the clocks of a zone are set at whole ones.
	at := time.UnixMicro(now).In(w.Zone)
	_, offset := at.Zone()
	first := w.Period.first(at.Unix() + int64(offset))
	n := w.Period.lookBack()
	c := clocks{zone: w.Zone}
	c.read(w.Period.plus(first, n).Unix() - maxOffset)
	b := [4]int64{math.MinInt64, math.MinInt64, math.MinInt64, math.MinInt64}
	for ; b[2] <= at.Unix(); n++ {
		if begins := c.show(w.Period.plus(first, n).Unix()); begins > b[3] {
			b = [4]int64{b[1], b[2], b[3], begins}
		}
	}
	for i := range b {
		b[i] *= 1_000_000
	}
	return b
}

// first returns 00:00 of the first date of the period that holds a local time, both as if the zone were
// UTC.
func (p Period) first(local int64) time.Time {
	year, month, day := time.Unix(local, 0).UTC().Date()
	switch date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC); p {
	case Week:
		return date.AddDate(0, 0, -(int(date.Weekday())+6)%7)
	case Month:
		return date.AddDate(0, 0, 1-day)
	default:
		return date
	}
}

// plus returns the first date n periods after first.
func (p Period) plus(first time.Time, n int) time.Time {
	switch p {
	case Week:
		return first.AddDate(0, 0, 7*n)
	case Month:
		return first.AddDate(0, n, 0)
	default:
		return first.AddDate(0, 0, n)
	}
}

// lookBack returns, below 0, how many periods before the one of now's date to begin with so that at
// least two begin at times of their own until now: a zone may have skipped two dates at most.
func (p Period) lookBack() int {
	if p == Day {
		return -3
	}
	return -1
}

// maxOffset is, in seconds, what a zone's clocks are ahead of UTC at most (RFC 8536, section 3.2).
const maxOffset = 26 * 3600

// secondsPerDay is how many seconds a day of UTC has.
const secondsPerDay = 86_400

// clocks are what a zone's clocks show, read forward in time. Times are seconds since 1970.
type clocks struct {
	zone   *time.Location
	from   int64 // since when they are offset ahead of UTC, or later
	to     int64 // until when, or earlier
	offset int64
}

// read reads the clocks at a time.
func (c *clocks) read(at int64) {
	t := time.Unix(at, 0).In(c.zone)
	_, offset := t.Zone()
	_, end := t.ZoneBounds()
	c.from, c.to, c.offset = at, math.MaxInt64, int64(offset)
	if !end.IsZero() {
		c.to = end.Unix()
	}
	if c.to <= at {
		// Where no table but a rule says when the clocks change, package time looks at one year
		// and takes it that it ends after 365 days: at is on 31 December of a leap year.
		c.to = (at/secondsPerDay + 1) * secondsPerDay
	}
}

// show returns the first instant, not before from, at which the clocks show local or later. local is a
// time as if the zone were UTC.
func (c *clocks) show(local int64) int64 {
	for local-c.offset >= c.to {
		c.read(c.to)
	}
	return max(c.from, local-c.offset)
}
