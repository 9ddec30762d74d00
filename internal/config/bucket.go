package config

import (
	"errors"
	"strings"

	"github.com/tidegate/tidegate/internal/limit"
)

// setting is what a file says, and where; at is zero when it says nothing.
type setting[T any] struct {
	at  pos
	val T
}

func (s setting[T]) set() bool { return s.at.line > 0 }

// or returns s, or the base where the file does not say s.
func (s setting[T]) or(base setting[T]) setting[T] {
	if s.set() {
		return s
	}
	return base
}

// bucket is what a limit or an override says of its token bucket. At most one of rate and refill
// is set.
type bucket struct {
	rate    setting[rate]
	refill  setting[refill]
	burst   setting[int64]
	initial setting[int64] // or full
}

type rate struct {
	text string
	limit.ParsedRate
}

// refill is tokens that come all at once, every so many microseconds.
type refill struct{ every, tokens int64 }

// full as the initial level is whatever the burst is.
const full = -1

// readBucket reads the settings of a bucket.
func readBucket(m *mapping) bucket {
	var b bucket
	readSetting(m, "rate", readRate, &b.rate)
	readSetting(m, "refill", readRefill, &b.refill)
	readSetting(m, "burst", value.whole, &b.burst)
	readSetting(m, "initial", readInitial, &b.initial)
	if m.has("rate") && m.has("refill") {
		m.src.refuse(m.placeOf("refill"), "refill replaces rate: write one of the two")
	}
	return b
}

// readSetting is read, and remembers where the value stands.
func readSetting[T any](m *mapping, key string, reader func(value) (T, bool), into *setting[T]) {
	read(m, key, func(v value) (setting[T], bool) {
		val, ok := reader(v)
		return setting[T]{v.at, val}, ok
	}, into)
}

func readRate(v value) (rate, bool) {
	const want = "tokens per interval, such as 100/s, 0.5/m or 300/30s"
	text, ok := v.scalar(want)
	if !ok {
		return rate{}, false
	}
	parsed, err := limit.ParseRate(text)
	switch {
	case err == nil:
		return rate{text, parsed}, true
	case len(text) > 64:
		v.src.refuse(v.at, "rate is %s: write %s", v.shown(), want)
	case strings.HasPrefix(text, "-"):
		v.src.refuse(v.at, "rate is %s: write 0/s to let nothing pass, or more", v.shown())
	case strings.Contains(err.Error(), "such as"):
		v.src.refuse(v.at, "%v", err)
	default:
		v.src.refuse(v.at, "%v: write %s", err, want)
	}
	return rate{}, false
}

func readRefill(v value) (refill, bool) {
	m, ok := v.mapping()
	if !ok {
		return refill{}, false
	}
	var tokens, every setting[int64]
	readSetting(m, "tokens", value.whole, &tokens)
	readSetting(m, "every", func(v value) (int64, bool) {
		d, ok := v.duration()
		return d.Microseconds(), ok
	}, &every)
	if m.lacks("tokens") || m.lacks("every") {
		m.src.refuse(m.at, "refill needs every and tokens: write refill: {every: 100ms, tokens: 10}")
	}
	m.close()
	return refill{every.val, tokens.val}, every.set() && tokens.set()
}

func readInitial(v value) (int64, bool) {
	const want = "full, empty or a whole number"
	switch text, ok := v.scalar(want); {
	case !ok:
		return 0, false
	case text == "full":
		return full, true
	case text == "empty":
		return 0, true
	case text == "" || strings.Trim(text, "+-.0123456789_eExX") != "":
		v.src.refuse(v.at, "initial is %s: write %s", v.shown(), want)
		return 0, false
	}
	return v.whole()
}

// over returns the settings of an override on those of its limit: what the override leaves out
// stays as the limit has it.
func (b bucket) over(base bucket) bucket {
	merged := bucket{burst: b.burst.or(base.burst), initial: b.initial.or(base.initial)}
	switch {
	case b.rate.set() || b.refill.set():
		merged.rate, merged.refill = b.rate, b.refill
	default:
		merged.rate, merged.refill = base.rate, base.refill
	}
	return merged
}

func (b bucket) empty() bool {
	return !b.rate.set() && !b.refill.set() && !b.burst.set() && !b.initial.set()
}

// capacity returns the burst, or what it is when the file does not say it.
func (b bucket) capacity() int64 {
	switch {
	case b.burst.set():
		return b.burst.val
	case b.refill.set():
		return b.refill.val.tokens
	}
	return b.rate.val.Count
}

// passesNothing reports whether the rate, the refill or the burst is 0.
func (b bucket) passesNothing() bool {
	if b.refill.set() {
		return b.refill.val.tokens == 0 || b.capacity() == 0
	}
	return b.rate.val.Tokens == 0 || b.capacity() == 0
}

// build returns the bucket that requests are decided with. A problem is said to be at the first
// of places that is in the file.
func (b bucket) build(src *source, places ...pos) (limit.TokenBucket, bool) {
	at := first(places)
	burst, initial := b.capacity(), b.initial.val
	if !b.initial.set() || initial == full {
		initial = burst
	}
	if initial > burst {
		src.refuse(first(append([]pos{b.initial.at}, at)), "initial is %d, above the burst of %d: write at most the burst, or full", initial, burst)
		return limit.TokenBucket{}, false
	}
	var built limit.TokenBucket
	var err error
	if b.refill.set() {
		built, err = limit.NewDiscreteBucket(b.refill.val.tokens, b.refill.val.every, burst, initial)
	} else {
		built, err = limit.NewTokenBucket(b.rate.val.Rate, burst, initial)
	}
	switch {
	case errors.Is(err, limit.ErrTooSlow):
		src.refuse(at, "a burst of %d at %s takes more than 100 years from empty to full: lower the burst or raise the rate", burst, b.pace())
	case err != nil:
		src.refuse(at, "%v: write other numbers", err)
	}
	return built, err == nil
}

// pace writes how fast the bucket fills.
func (b bucket) pace() string {
	if b.refill.set() {
		return limit.Rate{Tokens: b.refill.val.tokens, Micros: b.refill.val.every}.String()
	}
	return b.rate.val.Rate.String()
}

// first returns the first place that is in the file.
func first(places []pos) pos {
	for _, p := range places {
		if p.line > 0 {
			return p
		}
	}
	return pos{1, 1}
}
