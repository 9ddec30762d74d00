package limit

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Rate is Tokens per Micros microseconds, in lowest terms, with (Tokens + 1) × Micros at most
// 2^53, so that one step of refill never leaves the exact integers. The zero Rate lets nothing
// pass.
type Rate struct {
	Tokens int64
	Micros int64
}

// String writes the rate as tokens per interval, "1 token per 10ms" for 100/s.
func (r Rate) String() string {
	if r.Tokens == 0 {
		return "0 tokens"
	}
	every := FormatMicros(r.Micros)
	if r.Tokens == 1 {
		return "1 token per " + every
	}
	return strconv.FormatInt(r.Tokens, 10) + " tokens per " + every
}

// FormatMicros writes a time in microseconds in the largest unit that holds it whole.
func FormatMicros(us int64) string {
	for _, u := range slices.Backward(intervalUnits) {
		if us >= u.micros && us%u.micros == 0 {
			return strconv.FormatInt(us/u.micros, 10) + u.name
		}
	}
	return "0s"
}

// ParsedRate is what a rate's text says.
type ParsedRate struct {
	Rate
	Count   int64 // the number before the slash, rounded down, at least 1 unless it is 0: the default burst
	Rounded bool  // Rate is the nearest below the text, not exactly the text
}

// ParseRate reads a rate: a number of tokens, a slash, and an interval. The number may have a
// decimal fraction. The interval is a unit (us, ms, s, m, h, d) or a number and a unit, as in
// "100/s", "0.5/m", "300/30s". A rate whose exact value would need larger numbers than 2^53
// becomes the nearest one below, and Rounded says so.
func ParseRate(text string) (ParsedRate, error) {
	number, interval, found := strings.Cut(text, "/")
	if !found {
		return ParsedRate{}, fmt.Errorf("%q is no rate: write tokens per interval, such as 100/s, 0.5/m or 300/30s", text)
	}
	count, err := parseDecimal(number)
	if err != nil {
		return ParsedRate{}, fmt.Errorf("%q is no rate: %w", text, err)
	}
	micros, err := ParseInterval(interval)
	if err != nil {
		return ParsedRate{}, fmt.Errorf("%q is no rate: %w", text, err)
	}
	if count.Sign() == 0 {
		return ParsedRate{}, nil
	}
	whole := new(big.Int).Quo(count.Num(), count.Denom())
	if whole.Cmp(big.NewInt(MaxNumber)) > 0 {
		return ParsedRate{}, fmt.Errorf("%q is no rate: the number is above 2^53", text)
	}
	exact := count.Quo(count, new(big.Rat).SetInt64(micros))
	rate := nearestBelow(exact)
	if rate.Tokens == 0 {
		return ParsedRate{}, fmt.Errorf("%q is too slow a rate: less than one token in 100 years", text)
	}
	rounded := new(big.Rat).SetFrac64(rate.Tokens, rate.Micros).Cmp(exact) != 0
	return ParsedRate{Rate: rate, Count: max(1, whole.Int64()), Rounded: rounded}, nil
}

// parseDecimal reads digits with at most one point, up to 40 characters: no sign, no exponent.
func parseDecimal(s string) (*big.Rat, error) {
	digits := strings.Replace(s, ".", "", 1)
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return nil, fmt.Errorf("%q is not a number of 0 or more", s)
		}
	}
	if digits == "" || len(s) > 40 {
		return nil, fmt.Errorf("%q is not a number of at most 40 digits", s)
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	return r, nil
}

var intervalUnits = []struct {
	name   string
	micros int64
}{{"us", 1}, {"ms", 1_000}, {"s", 1_000_000}, {"m", 60_000_000}, {"h", 3_600_000_000}, {"d", 86_400_000_000}}

// ParseInterval reads a unit (us, ms, s, m, h, d) or a whole number and a unit, such as "30s",
// and returns it in microseconds: at least 1, at most 100 years.
func ParseInterval(s string) (int64, error) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	count := int64(1)
	if digits > 0 {
		n, _ := strconv.ParseInt(s[:digits], 10, 64) // beyond int64 it is the largest one
		if n == 0 {
			return 0, fmt.Errorf("%q is not an interval above zero", s)
		}
		count = n
	}
	for _, u := range intervalUnits {
		if s[digits:] != u.name {
			continue
		}
		if count > maxFill/u.micros {
			return 0, fmt.Errorf("the interval %q is longer than 100 years", s)
		}
		return count * u.micros, nil
	}
	return 0, fmt.Errorf("%q is not an interval: write a unit of us, ms, s, m, h or d, or a whole number and a unit, such as 30s", s)
}

// nearestBelow returns the largest rate p/q ≤ exact with (p + 1) × q ≤ 2^53, in lowest terms.
//
// It walks the Stern-Brocot tree. Every fraction between the bounds of a step has at least the
// numerator and denominator of their mediant, so the first mediant that breaks the bound proves
// that nothing better is left, and the lower bound is the answer. Runs of steps to one side are
// taken at once, so the walk has at most a few dozen steps.
func nearestBelow(exact *big.Rat) Rate {
	if num, den := exact.Num(), exact.Denom(); num.IsInt64() && den.IsInt64() && inBounds(num.Int64(), den.Int64()) {
		return Rate{Tokens: num.Int64(), Micros: den.Int64()}
	}
	lp, lq, rp, rq := int64(0), int64(1), int64(1), int64(0)
	for {
		// As far as possible to the right: the lower bound grows while it stays at or below exact.
		if k := runLength(lp, lq, rp, rq, func(p, q int64) bool { return compare(exact, p, q) >= 0 }); k > 0 {
			lp, lq = lp+k*rp, lq+k*rq
		} else if !inBounds(lp+rp, lq+rq) {
			return Rate{Tokens: lp, Micros: lq}
		}
		if k := runLength(rp, rq, lp, lq, func(p, q int64) bool { return compare(exact, p, q) < 0 }); k > 0 {
			rp, rq = rp+k*lp, rq+k*lq
		} else if !inBounds(lp+rp, lq+rq) {
			return Rate{Tokens: lp, Micros: lq}
		}
	}
}

// runLength returns the largest k such that (p + k×dp) / (q + k×dq) is in bounds and passes ok,
// where ok holds up to some k and not beyond.
func runLength(p, q, dp, dq int64, ok func(p, q int64) bool) int64 {
	good := func(k int64) bool {
		return k == 0 || inBounds(p+k*dp, q+k*dq) && ok(p+k*dp, q+k*dq)
	}
	high := int64(1)
	for high < MaxNumber && good(high) {
		high *= 2
	}
	low := high / 2
	for low+1 < high {
		if mid := (low + high) / 2; good(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// inBounds reports whether (p + 1) × q ≤ 2^53; every operand may be up to 2^62.
func inBounds(p, q int64) bool {
	return p >= 0 && q >= 0 && p < MaxNumber && q <= MaxNumber && (q == 0 || p+1 <= MaxNumber/q)
}

func compare(exact *big.Rat, p, q int64) int {
	if q == 0 {
		return -1
	}
	return exact.Cmp(new(big.Rat).SetFrac64(p, q))
}
