package limit

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Settings are the numbers that one request is decided with: a limit's own, or those of its first
// matching override, which has the same Algorithm and the same span. Settings are comparable: equal
// ones decide alike.
type Settings struct {
	Algorithm Algorithm
	Bucket    TokenBucket // of token_bucket and leaky_bucket; of leaky_bucket_log: the rate at which it drains, and its capacity as Burst
	Window    Window      // of fixed_window, sliding_window and sliding_window_log
	Slots     Slots       // of concurrency

	// Hold is for how long, in µs, a node may hold tokens on lease, see Leased; 0: the limit is strict, and
	// every token is asked for.
	Hold int64
}

// Window holds the settings of a limit over a span of time. A Limit of 0 lets nothing pass.
type Window struct {
	Limit  int64
	Micros int64          // the span, in µs; 0 with a Period
	Unit   int64          // sliding_window: µs in a unit of its arithmetic
	Units  int64          // sliding_window: the span in such units, rounded up
	Period Period         // fixed_window: the calendar period that is the window; 0: none
	Zone   *time.Location // of Period

	// Overdraw lets a cost above Limit pass while nothing is used, and leave a debt. Only a node's
	// share has it.
	Overdraw bool
}

// Slots holds the settings of a limit on what is under way at once. A Limit of 0 lets nothing pass.
type Slots struct {
	Limit int64
	TTL   int64 // how long a slot is held at most, in µs

	Overdraw bool // as in Window
}

// NewLeakyBucketLog returns the settings of a leaky bucket of which every waiting request is known:
// it holds at most capacity, and drains at rate. Zeros and errors are as in NewTokenBucket.
func NewLeakyBucketLog(rate Rate, capacity int64) (Settings, error) {
	b, err := NewTokenBucket(rate, capacity, capacity)
	return Settings{Algorithm: LeakyBucketLogAlgorithm, Bucket: b}, err
}

// NewSlidingWindowLog returns the settings of an exact sliding window of span µs. A limit of 0 lets
// nothing pass. It is an error when limit is negative or above 2^53, or when span is not between
// 1µs and 100 years.
func NewSlidingWindowLog(limit, span int64) (Settings, error) {
	return newWindow(SlidingWindowLogAlgorithm, limit, span)
}

// NewFixedWindow returns the settings of a window of span µs that begins with its first request.
// Zeros and errors are as in NewSlidingWindowLog.
func NewFixedWindow(limit, span int64) (Settings, error) {
	return newWindow(FixedWindowAlgorithm, limit, span)
}

// NewCalendarWindow returns the settings of a window that is a calendar period in zone. Zeros and
// errors are as in NewSlidingWindowLog.
func NewCalendarWindow(limit int64, period Period, zone *time.Location) (Settings, error) {
	if zone == nil {
		return Settings{}, errors.New("limit: a calendar window needs a time zone")
	}
	s, err := newWindow(FixedWindowAlgorithm, limit, maxFill)
	s.Window.Micros, s.Window.Period, s.Window.Zone = 0, period, zone
	return s, err
}

// maxWeight is what limit × window stays below in the units of a sliding window's arithmetic: 2^52,
// so that the sum of two such products stays below 2^53.
const maxWeight = 1 << 52

// minUnits is how many units a sliding window has at least: with fewer its arithmetic is too coarse.
const minUnits = 1000

// NewSlidingWindow returns the settings of an approximate sliding window of span µs. Zeros and errors
// are as in NewSlidingWindowLog, with at most 50 years; ErrTooCoarse also when limit × span leaves fewer than 1,000 steps in
// the window.
func NewSlidingWindow(limit, span int64) (Settings, error) {
	s, err := newWindow(SlidingWindowAlgorithm, limit, span)
	if err != nil {
		return s, err
	}
	if span > maxFill/2 { // two windows must lie below 2^53
		return s, fmt.Errorf("limit: a sliding window of %dµs is out of range", span)
	}
	tooCoarse := fmt.Errorf("%w: a limit of %d in %s", ErrTooCoarse, limit, FormatMicros(span))
	if limit >= maxWeight {
		return s, tooCoarse
	}
	unit := int64(1)
	for limit > 0 && ceilDiv(span, unit) > (maxWeight-1)/limit {
		unit *= 10
	}
	s.Window.Unit, s.Window.Units = unit, ceilDiv(span, unit)
	if unit > 1 && span/unit < minUnits {
		return s, tooCoarse
	}
	return s, nil
}

func newWindow(a Algorithm, limit, span int64) (Settings, error) {
	if limit < 0 || limit > MaxNumber {
		return Settings{}, fmt.Errorf("limit: a limit of %d is out of range", limit)
	}
	if span <= 0 || span > maxFill {
		return Settings{}, fmt.Errorf("limit: a window of %dµs is out of range", span)
	}
	return Settings{Algorithm: a, Window: Window{Limit: limit, Micros: span}}, nil
}

// NewConcurrency returns the settings of a limit on what is under way at once; a slot frees itself
// after ttl µs. Zeros and errors are as in NewSlidingWindowLog, with ttl as its span.
func NewConcurrency(limit, ttl int64) (Settings, error) {
	s, err := newWindow(ConcurrencyAlgorithm, limit, ttl)
	s.Window, s.Slots = Window{}, Slots{Limit: limit, TTL: ttl}
	return s, err
}

// Capacity returns the number shown as the limit: the most that can pass at once.
func (s *Settings) Capacity() int64 {
	switch s.Algorithm {
	case ConcurrencyAlgorithm:
		return s.Slots.Limit
	case FixedWindowAlgorithm, SlidingWindowAlgorithm, SlidingWindowLogAlgorithm:
		return s.Window.Limit
	default:
		return s.Bucket.Burst
	}
}

// Span returns the time that RateLimit-Policy shows beside Capacity: for a bucket the time from empty
// to full, for a window its length (a month is 31 days). It is 0 when nothing ever passes, and for
// concurrency, which has none.
func (s *Settings) Span() time.Duration {
	switch {
	case s.Capacity() == 0 || s.Algorithm == ConcurrencyAlgorithm:
		return 0
	case s.Window.Period != 0:
		return s.Window.Period.longest()
	case s.Window.Micros > 0:
		return time.Duration(s.Window.Micros) * time.Microsecond
	}
	empty := BucketState{Micros: s.Bucket.Micros}
	return time.Duration(s.Bucket.TimeToFull(empty)) * time.Microsecond
}

// span names what a change of begins a state afresh, beside the algorithm: the window, or the period
// and its time zone; and that the limit is leased, with its hold.
func (s *Settings) span() []string {
	var names []string
	switch {
	case s.Window.Period != 0:
		names = []string{s.Window.Period.String(), s.Window.Zone.String()}
	case s.Window.Micros > 0:
		names = []string{strconv.FormatInt(s.Window.Micros, 10)}
	}
	if s.Hold > 0 {
		names = append(names, "leased", strconv.FormatInt(s.Hold, 10))
	}
	return names
}

// costOf returns what a question of the given cost takes: a slot whatever the cost, elsewhere the
// cost itself.
func (s *Settings) costOf(cost int64) int64 {
	if s.Algorithm == ConcurrencyAlgorithm {
		return min(cost, 1)
	}
	return cost
}

// Share returns the settings of one of n nodes that keep the limit together without a shared store:
// an n-th of it, rounded down, which may let nothing pass but what Overdraw does; it is strict, since
// nobody else takes from it. n below 2 is 1.
func (s Settings) Share(n int64) Settings {
	n, s.Hold = max(1, n), 0
	overdraw := s.Capacity() > 0
	switch s.Algorithm {
	case ConcurrencyAlgorithm:
		s.Slots.Limit, s.Slots.Overdraw = s.Slots.Limit/n, overdraw
	case FixedWindowAlgorithm, SlidingWindowAlgorithm, SlidingWindowLogAlgorithm:
		s.Window.Limit, s.Window.Overdraw = s.Window.Limit/n, overdraw
	default:
		s.Bucket = s.Bucket.Share(n)
	}
	return s
}
