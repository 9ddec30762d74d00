package limit_test

import (
	"errors"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestBucketSettingsRefused(t *testing.T) {
	const most, years = limit.MaxNumber, 36525 * 86_400_000_000
	tests := []struct {
		name           string
		rate           limit.Rate
		burst, initial int64
		want           string // "" for none
	}{
		{"the least", limit.Rate{Tokens: 1, Micros: years}, 1, 0, ""},
		{"the most", limit.Rate{Tokens: most - 1, Micros: 1}, most, most, ""},
		{"rate 0", limit.Rate{}, 5, 5, ""},
		{"burst 0", limit.Rate{Tokens: 1, Micros: 1}, 0, 0, ""},
		{"100 years", limit.Rate{Tokens: 1, Micros: 86_400_000_000}, 36525, 0, ""},
		{"100 years are one and a half intervals", limit.Rate{Tokens: 2, Micros: years / 3 * 2}, 3, 0, ""},
		{"one more than in 100 years", limit.Rate{Tokens: 2, Micros: years / 3 * 2}, 4, 0,
			"limit: more than 100 years from empty to full: a burst of 4 at 2 tokens per 24350d"},
		{"100 years and a day", limit.Rate{Tokens: 1, Micros: 86_400_000_000}, 36526, 0,
			"limit: more than 100 years from empty to full: a burst of 36526 at 1 token per 1d"},
		{"100 years and a microsecond", limit.Rate{Tokens: 1, Micros: years + 1}, 1, 0,
			"limit: more than 100 years from empty to full: a burst of 1 at 1 token per 3155760000000001us"},
		{"a burst below 0", limit.Rate{Tokens: 1, Micros: 1}, -1, 0, "limit: a burst of -1 is out of range"},
		{"a burst above 2^53", limit.Rate{Tokens: 1, Micros: 1}, most + 1, 0, "limit: a burst of 9007199254740993 is out of range"},
		{"a burst below 0 at rate 0", limit.Rate{}, -1, 0, "limit: a burst of -1 is out of range"},
		{"an initial level below 0", limit.Rate{Tokens: 1, Micros: 1}, 1, -1, "limit: an initial level of -1 is not between 0 and the burst of 1"},
		{"an initial level above the burst", limit.Rate{Tokens: 1, Micros: 1}, 1, 2, "limit: an initial level of 2 is not between 0 and the burst of 1"},
		{"a rate below 0", limit.Rate{Tokens: -1, Micros: 1}, 1, 1, "limit: a rate of -1 per 1µs is out of range"},
		{"no interval", limit.Rate{Tokens: 1}, 1, 1, "limit: a rate of 1 per 0µs is out of range"},
		{"a rate beyond the exact integers", limit.Rate{Tokens: most, Micros: 1}, 1, 1, "limit: a rate of 9007199254740992 per 1µs is out of range"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := limit.NewTokenBucket(tt.rate, tt.burst, tt.initial)
			if got := text(err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 86_400_000_000}, 36526, 0); !errors.Is(err, limit.ErrTooSlow) {
		t.Errorf("%v does not match ErrTooSlow", err)
	}
}

func TestDiscreteSettingsRefused(t *testing.T) {
	const most, years = limit.MaxNumber, 36525 * 86_400_000_000
	tests := []struct {
		name                    string
		tokens, interval, burst int64
		want                    string
	}{
		{"one a century", 1, years, 1, ""},
		{"all at once", most, 1, most, ""},
		{"no tokens", 0, 1, 5, ""},
		{"100 years, three at a time", 3, 86_400_000_000, 3 * 36525, ""},
		{"100 years and a day, three at a time", 3, 86_400_000_000, 3*36525 + 1,
			"limit: more than 100 years from empty to full: a burst of 109576 at 3 tokens per 1d"},
		{"more than a burst at once", most, 1, 1, ""},
		{"tokens above 2^53", most + 1, 1, 5, "limit: a refill of 9007199254740993 tokens every 1µs is out of range"},
		{"tokens below 0", -1, 1, 5, "limit: a refill of -1 tokens every 1µs is out of range"},
		{"no interval", 1, 0, 5, "limit: a refill of 1 tokens every 0µs is out of range"},
		{"an interval above 100 years", 1, years + 1, 5, "limit: a refill of 1 tokens every 3155760000000001µs is out of range"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := limit.NewDiscreteBucket(tt.tokens, tt.interval, tt.burst, 0)
			if got := text(err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// text returns an error's text, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
