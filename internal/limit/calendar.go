package limit

import "time"

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
func (w *Window) Boundaries(now int64) [4]int64 { return [4]int64{} }
