package limit_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestParseRate(t *testing.T) {
	tests := []struct {
		text    string
		want    limit.Rate
		count   int64
		rounded bool
	}{
		{"100/s", limit.Rate{Tokens: 1, Micros: 10_000}, 100, false},
		{"0.5/m", limit.Rate{Tokens: 1, Micros: 120_000_000}, 1, false},
		{"300/30s", limit.Rate{Tokens: 1, Micros: 100_000}, 300, false},
		{"1/3s", limit.Rate{Tokens: 1, Micros: 3_000_000}, 1, false},
		{"2/7d", limit.Rate{Tokens: 1, Micros: 302_400_000_000}, 2, false},
		{"0.1/s", limit.Rate{Tokens: 1, Micros: 10_000_000}, 1, false},
		{"1.9/s", limit.Rate{Tokens: 19, Micros: 10_000_000}, 1, false},
		{"2.5/h", limit.Rate{Tokens: 1, Micros: 1_440_000_000}, 2, false},
		{".5/ms", limit.Rate{Tokens: 1, Micros: 2_000}, 1, false},
		{"3./s", limit.Rate{Tokens: 3, Micros: 1_000_000}, 3, false},
		{"010/s", limit.Rate{Tokens: 1, Micros: 100_000}, 10, false},
		{"5/2us", limit.Rate{Tokens: 5, Micros: 2}, 5, false},
		{"1/36525d", limit.Rate{Tokens: 1, Micros: 3_155_760_000_000_000}, 1, false},
		{"9007199254740991/us", limit.Rate{Tokens: 9_007_199_254_740_991, Micros: 1}, 9_007_199_254_740_991, false},
		{"9007199254740992/us", limit.Rate{Tokens: 9_007_199_254_740_991, Micros: 1}, 9_007_199_254_740_992, true},
		{"999999999999999/s", limit.Rate{Tokens: 3_000_999_999_999, Micros: 3001}, 999_999_999_999_999, true},
		{"0/s", limit.Rate{}, 0, false},
		{"0.00/30d", limit.Rate{}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := limit.ParseRate(tt.text)
			want := limit.ParsedRate{Rate: tt.want, Count: tt.count, Rounded: tt.rounded}
			if err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestParseRateRefuses(t *testing.T) {
	const unit = `is not an interval: write a unit of us, ms, s, m, h or d, or a whole number and a unit, such as 30s`
	digits := strings.Repeat("1", 41)
	tests := []struct{ text, want string }{
		{"", `"" is no rate: write tokens per interval, such as 100/s, 0.5/m or 300/30s`},
		{"100", `"100" is no rate: write tokens per interval, such as 100/s, 0.5/m or 300/30s`},
		{"x/s", `"x/s" is no rate: "x" is not a number of 0 or more`},
		{"-1/s", `"-1/s" is no rate: "-1" is not a number of 0 or more`},
		{"+1/s", `"+1/s" is no rate: "+1" is not a number of 0 or more`},
		{"1e3/s", `"1e3/s" is no rate: "1e3" is not a number of 0 or more`},
		{"1_000/s", `"1_000/s" is no rate: "1_000" is not a number of 0 or more`},
		{"1.2.3/s", `"1.2.3/s" is no rate: "1.2.3" is not a number of 0 or more`},
		{" 1/s", `" 1/s" is no rate: " 1" is not a number of 0 or more`},
		{"/s", `"/s" is no rate: "" is not a number of at most 40 digits`},
		{"./s", `"./s" is no rate: "." is not a number of at most 40 digits`},
		{digits + "/s", `"` + digits + `/s" is no rate: "` + digits + `" is not a number of at most 40 digits`},
		{"9007199254740993/s", `"9007199254740993/s" is no rate: the number is above 2^53`},
		{"1/", `"1/" is no rate: "" ` + unit},
		{"1/week", `"1/week" is no rate: "week" ` + unit},
		{"1/30", `"1/30" is no rate: "30" ` + unit},
		{"1/1.5s", `"1/1.5s" is no rate: "1.5s" ` + unit},
		{"1/s/s", `"1/s/s" is no rate: "s/s" ` + unit},
		{"1/ s", `"1/ s" is no rate: " s" ` + unit},
		{"1/0s", `"1/0s" is no rate: "0s" is not an interval above zero`},
		{"1/36526d", `"1/36526d" is no rate: the interval "36526d" is longer than 100 years`},
		{"1/99999999999999999999s", `"1/99999999999999999999s" is no rate: the interval "99999999999999999999s" is longer than 100 years`},
		{"0/fortnight", `"0/fortnight" is no rate: "fortnight" ` + unit},
		{"0.0000000001/d", `"0.0000000001/d" is too slow a rate: less than one token in 100 years`},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			if got, err := limit.ParseRate(tt.text); text(err) != tt.want || got != (limit.ParsedRate{}) {
				t.Errorf("got %+v, %q, want %q", got, text(err), tt.want)
			}
		})
	}
}

func TestRateString(t *testing.T) {
	tests := []struct {
		rate limit.Rate
		want string
	}{
		{limit.Rate{}, "0 tokens"},
		{limit.Rate{Tokens: 1, Micros: 10_000}, "1 token per 10ms"},
		{limit.Rate{Tokens: 3, Micros: 500}, "3 tokens per 500us"},
		{limit.Rate{Tokens: 17, Micros: 30_000_000}, "17 tokens per 30s"},
		{limit.Rate{Tokens: 1, Micros: 60_000_000}, "1 token per 1m"},
		{limit.Rate{Tokens: 1, Micros: 90_000_000}, "1 token per 90s"},
		{limit.Rate{Tokens: 2, Micros: 7 * 86_400_000_000}, "2 tokens per 7d"},
		{limit.Rate{Tokens: 1, Micros: 3_600_000_001}, "1 token per 3600000001us"},
	}
	for _, tt := range tests {
		if got := tt.rate.String(); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.rate, got, tt.want)
		}
	}
}

// exactRate reads a rate's text without the code under test; ok is false where it is none.
func exactRate(text string) (number, rate *big.Rat, ok bool) {
	parts := regexp.MustCompile(`^([0-9]*)(?:\.([0-9]*))?/([0-9]*)(us|ms|s|m|h|d)$`).FindStringSubmatch(text)
	if parts == nil || parts[1]+parts[2] == "" {
		return nil, nil, false
	}
	digits, _ := new(big.Int).SetString(parts[1]+parts[2], 10)
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(parts[2]))), nil)
	number = new(big.Rat).SetFrac(digits, scale)
	count := big.NewInt(1)
	if parts[3] != "" {
		count.SetString(parts[3], 10)
	}
	unit := map[string]int64{"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6, "d": 86400e6}[parts[4]]
	micros := count.Mul(count, big.NewInt(unit))
	if micros.Sign() == 0 {
		return nil, nil, false
	}
	return number, new(big.Rat).Quo(number, new(big.Rat).SetInt(micros)), true
}

// checkRate holds what ParseRate made of text to what text says: never above it, in bounds, in
// lowest terms, and with no better fraction in bounds.
func checkRate(text string, got limit.ParsedRate) error {
	number, exact, ok := exactRate(text)
	switch {
	case !ok:
		return fmt.Errorf("%q is no rate, but got %+v", text, got)
	case exact.Sign() == 0:
		if got != (limit.ParsedRate{}) {
			return fmt.Errorf("%q is 0, but got %+v", text, got)
		}
		return nil
	case got.Count != max(1, floorOf(number)):
		return fmt.Errorf("%q: got the count %d", text, got.Count)
	case got.Tokens <= 0 || got.Micros <= 0:
		return fmt.Errorf("%q: got %+v", text, got)
	}
	p, q := big.NewInt(got.Tokens), big.NewInt(got.Micros)
	below := new(big.Rat).SetFrac(p, q)
	difference := exact.Cmp(below)
	switch {
	case below.Num().Cmp(p) != 0:
		return fmt.Errorf("%q: %+v is not in lowest terms", text, got)
	case difference < 0:
		return fmt.Errorf("%q: %+v is above it", text, got)
	case got.Rounded != (difference > 0):
		return fmt.Errorf("%q: rounded %t", text, got.Rounded)
	case !fits(p, q):
		return fmt.Errorf("%q: %+v is out of bounds", text, got)
	case difference > 0:
		if better := betterBelow(p, q, exact); fits(better.Num(), better.Denom()) {
			return fmt.Errorf("%q: %s is nearer than %+v", text, better, got)
		}
	}
	return nil
}

// fits reports whether (p + 1) × q ≤ 2^53.
func fits(p, q *big.Int) bool {
	product := new(big.Int).Add(p, big.NewInt(1))
	return product.Mul(product, q).Cmp(big.NewInt(limit.MaxNumber)) <= 0
}

// betterBelow returns the fraction with the least numerator and denominator between p/q, which is
// in lowest terms, and exact: every other there has a numerator and a denominator at least as
// large. Among the fractions r/s with r×q − p×s = 1, whose mediant with p/q is the simplest
// fraction between the two, it takes the last above exact.
func betterBelow(p, q *big.Int, exact *big.Rat) *big.Rat {
	r, s := big.NewInt(1), new(big.Int).Sub(q, big.NewInt(1)) // for p = 1
	if p.Cmp(big.NewInt(1)) > 0 {
		r.ModInverse(q, p)
		s.Mul(r, q).Sub(s, big.NewInt(1)).Quo(s, p)
	}
	// (r + k×p) / (s + k×q) > n/d as long as k < (r×d − n×s) / (n×q − p×d).
	n, d := exact.Num(), exact.Denom()
	over := new(big.Int).Sub(new(big.Int).Mul(r, d), new(big.Int).Mul(n, s))
	if over.Sign() <= 0 { // r/s itself lies between
		return new(big.Rat).SetFrac(r, s)
	}
	step := new(big.Int).Sub(new(big.Int).Mul(n, q), new(big.Int).Mul(p, d))
	k := over.Add(over, step).Sub(over, big.NewInt(1)).Quo(over, step) // ⌈over ÷ step⌉: the first that is not above
	return new(big.Rat).SetFrac(r.Add(r, new(big.Int).Mul(k, p)), s.Add(s, new(big.Int).Mul(k, q)))
}

// TestRoundedRates parses random rates of every size that must be rounded, or just not.
func TestRoundedRates(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	rounded := 0
	for range traces(30_000) {
		text := fmt.Sprint(spread(rng, 1, 9e15))
		if rng.IntN(2) == 0 {
			text = fmt.Sprintf("%d.%0*d", spread(rng, 1, 1e12)-1, 1+rng.IntN(18), spread(rng, 1, 9e17))
		}
		text += "/" + fmt.Sprint(spread(rng, 1, 1e9)) + []string{"us", "ms", "s"}[rng.IntN(3)]
		got, err := limit.ParseRate(text)
		if err != nil { // slower than one token in 2^52 µs
			if _, exact, _ := exactRate(text); exact.Cmp(big.NewRat(1, 1<<52)) >= 0 {
				t.Fatal(err)
			}
			continue
		}
		if err := checkRate(text, got); err != nil {
			t.Fatal(err)
		}
		if got.Rounded {
			rounded++
		}
	}
	if rounded < 1000 {
		t.Errorf("only %d rates were rounded", rounded)
	}
}

// TestNearestBelowByTrial tries every denominator there is, for rates so fast that those are few.
func TestNearestBelowByTrial(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	for range traces(300) {
		text := fmt.Sprintf("%d/%dus", spread(rng, 1e14, 9e15), spread(rng, 1, 1e6))
		got, err := limit.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		_, exact, _ := exactRate(text)
		best := new(big.Rat)
		for q := int64(1); ; q++ {
			p := min(floorOf(new(big.Rat).Mul(exact, ratOf(q))), limit.MaxNumber/q-1)
			if tried := big.NewRat(p, q); tried.Cmp(best) > 0 {
				best = tried
			}
			// From here on the bound alone caps p/q, further below exact with every q.
			if limit.MaxNumber/q-1 < floorOf(exact)*q {
				break
			}
		}
		if want := (limit.Rate{Tokens: best.Num().Int64(), Micros: best.Denom().Int64()}); got.Rate != want {
			t.Fatalf("%s: got %+v, want %+v", text, got.Rate, want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"100/s", "0.5/m", "300/30s", "2/7d", "999999999999999/s", "0/s", "1/0s", "1.2.3/s", ".5/us", "9007199254740992.99/3us"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := limit.ParseRate(text)
		if err != nil {
			if got != (limit.ParsedRate{}) {
				t.Errorf("%q: got %+v beside %v", text, got, err)
			}
			return
		}
		if err := checkRate(text, got); err != nil {
			t.Error(err)
		}
	})
}
