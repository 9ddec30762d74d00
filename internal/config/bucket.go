package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/internal/limit"
)

// bucket is what a limit or an override says of its bucket, a token bucket or a leaky one. At most
// one of rate and refill is set.
type bucket struct {
	algorithm limit.Algorithm
	rate      setting[rate]
	refill    setting[refill] // token_bucket alone
	burst     setting[int64]  // the capacity of a leaky_bucket_log
	initial   setting[int64]  // or full; token_bucket alone
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
func readBucket(m *mapping, a limit.Algorithm) bucket {
	b := bucket{algorithm: a}
	readSetting(m, "rate", readRate, &b.rate)
	if a != limit.TokenBucketAlgorithm {
		readSetting(m, b.size(), value.whole, &b.burst)
		return b
	}
	readSetting(m, "refill", readRefill, &b.refill)
	readSetting(m, b.size(), value.whole, &b.burst)
	readSetting(m, "initial", readInitial, &b.initial)
	if m.has("rate") && m.has("refill") {
		m.src.refuse(m.placeOf("refill"), "refill replaces rate: write one of the two")
	}
	return b
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
		if parsed.Rounded {
			v.src.warn(v.at, "rate %s was rounded down to %s: numbers stay below 2^53", text, parsed.Rate)
		}
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
	readSetting(m, "every", micros, &every)
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

func (b bucket) missing(m *mapping) {
	switch {
	case b.algorithm == limit.TokenBucketAlgorithm && m.lacks("rate") && m.lacks("refill"):
		m.src.refuse(m.at, "a limit has neither rate nor refill: write rate: 100/s, or refill: {every: 100ms, tokens: 10}")
	case b.algorithm != limit.TokenBucketAlgorithm && m.lacks("rate"):
		m.src.refuse(m.at, "%s has no rate: write rate: 100/s", b.algorithm)
	}
	if b.algorithm == limit.LeakyBucketLogAlgorithm && m.lacks("capacity") {
		m.src.refuse(m.at, "%s has no capacity: write capacity: 100", b.algorithm)
	}
}

func (b bucket) override(m *mapping) numbers {
	own := readBucket(m, b.algorithm)
	merged := bucket{algorithm: b.algorithm, rate: own.rate, refill: own.refill, burst: own.burst.or(b.burst), initial: own.initial.or(b.initial)}
	if !own.rate.set() && !own.refill.set() {
		merged.rate, merged.refill = b.rate, b.refill
	}
	if !own.initial.set() && b.initial.set() {
		merged.initial.at = m.placeOf("burst", "rate", "refill") // it is the override that does not go with it
	}
	return merged
}

func (b bucket) denied() numbers { return bucket{algorithm: b.algorithm} }

// size returns the key of the setting that says how much the bucket holds.
func (b bucket) size() string {
	if b.algorithm == limit.LeakyBucketLogAlgorithm {
		return "capacity"
	}
	return "burst"
}

// capacity returns the burst, or what it is when the file does not say it.
func (b bucket) capacity() int64 {
	switch {
	case b.burst.set():
		return b.burst.val
	case b.algorithm == limit.LeakyBucketAlgorithm:
		return 1
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

func (b bucket) build(src *source, at pos) (limit.Settings, bool) {
	burst, initial := b.capacity(), b.initial.val
	if !b.initial.set() || initial == full {
		initial = burst
	}
	if initial > burst {
		src.refuse(b.initial.at, "initial is %d, above the burst of %d: write at most the burst, or full", initial, burst)
		return limit.Settings{}, false
	}
	built := limit.Settings{Algorithm: b.algorithm}
	var err error
	switch {
	case b.refill.set():
		built.Bucket, err = limit.NewDiscreteBucket(b.refill.val.tokens, b.refill.val.every, burst, initial)
	case b.algorithm == limit.LeakyBucketLogAlgorithm:
		built, err = limit.NewLeakyBucketLog(b.rate.val.Rate, burst)
	default:
		built.Bucket, err = limit.NewTokenBucket(b.rate.val.Rate, burst, initial)
	}
	switch {
	case errors.Is(err, limit.ErrTooSlow):
		src.refuse(at, "a %s of %d at %s takes more than 100 years %s: lower the %s or raise the rate", b.size(), burst, b.pace(), b.way(), b.size())
	case err != nil:
		src.refuse(at, "%v: write other numbers", err)
	}
	return built, err == nil
}

// way says which way the bucket goes by itself.
func (b bucket) way() string {
	if b.algorithm == limit.TokenBucketAlgorithm {
		return "from empty to full"
	}
	return "from full to empty"
}

// pace writes how fast the bucket fills, or drains.
func (b bucket) pace() string {
	if b.refill.set() {
		return limit.Rate{Tokens: b.refill.val.tokens, Micros: b.refill.val.every}.String()
	}
	return b.rate.val.Rate.String()
}

func (b bucket) describe(d *description, _ *limit.Settings) {
	d.line(2, "rate", "%s", b.describeRate())
	d.line(2, b.size(), "%s", b.describeBurst())
}

func (b bucket) summary(*limit.Settings) string {
	return b.describeRate() + ", " + b.size() + " " + b.describeBurst()
}

// describeRate writes tokens per interval, or that nothing passes.
func (b bucket) describeRate() string {
	switch {
	case b.passesNothing():
		return "nothing passes"
	case b.refill.set():
		return fmt.Sprintf("%s, all at once", b.pace())
	case b.rate.val.Rounded:
		return fmt.Sprintf("%s (rate %s was rounded down to it)", b.pace(), b.rate.val.text)
	}
	return fmt.Sprintf("%s (%s)", b.pace(), b.rate.val.text)
}

// describeBurst writes the burst, and what a new bucket holds when that is less.
func (b bucket) describeBurst() string {
	if b.initial.set() && b.initial.val != full {
		return fmt.Sprintf("%d, %d at first", b.capacity(), b.initial.val)
	}
	return fmt.Sprint(b.capacity())
}
