// Package vectors reads the golden traces that every implementation of an algorithm is held to: the
// arithmetic in limit, the embedded store, and the script on Redis. It is for tests alone.
package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Start is when every trace begins, in µs since 1970.
const Start = 1_780_000_000_000_000

// Trace is one trace, worked out by hand. What a step leaves out is zero.
type Trace struct {
	Name     string
	Settings settings
	Begins   string // in RFC 3339, when the trace begins; empty means Start
	Steps    []step
}

// settings are a limit's, as the config names them.
type settings struct {
	Algorithm string // empty means token_bucket

	Rate    string  // of the buckets; or
	Refill  *refill // a discrete one
	Burst   int64   // of leaky_bucket_log the capacity
	Initial *int64  // nil means Burst

	Limit    int64  // of the windows and of concurrency
	Window   int64  `json:"window_us"`
	Period   string // in place of Window
	Timezone string
	TTL      int64 `json:"ttl_us"`
}

type refill struct {
	Tokens int64
	Every  int64 `json:"every_us"`
}

type step struct {
	Settings *settings // in force from this step on
	State    *state    // takes the place of the stored one before this step
	Now      *int64    `json:"now_us"` // since the trace began; nil means Wait after the step before
	Wait     int64     `json:"wait_us"`
	Cost     int64
	MaxWait  int64 `json:"max_wait_us"`
	Repeat   int   // make the step so many times; 0 means once
	Want     want
}

// state is a stored state; its times count from when the trace began.
type state struct {
	Tokens, Rem, Micros int64
	At                  int64 `json:"at_us"`
	Until               int64 `json:"until_us"`
}

type want struct {
	Allowed, Never bool
	Remaining      int64
	RetryAfter     int64 `json:"retry_after_us"`
	ResetAfter     int64 `json:"reset_after_us"`
	Hold           int64 `json:"hold_us"`
}

// Read returns the traces in the file at path. Any failure ends the test.
func Read(t *testing.T, path string) []Trace {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var traces []Trace
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&traces); err != nil {
		t.Fatal(err)
	}
	return traces
}

// Ask decides a charge of the given settings and cost at a time, in µs since 1970.
type Ask func(now int64, settings *limit.Settings, maxWait time.Duration, cost int64) limit.Verdict

// Replay makes the steps of the trace on one key of a store: plant puts a token bucket's state there.
func (v Trace) Replay(t *testing.T, l *limit.Limit, plant func(limit.BucketState), ask Ask) {
	t.Helper()
	start := v.begins(t)
	current, now := v.Settings.Read(t), start
	for i, s := range v.Steps {
		if s.Settings != nil {
			current = s.Settings.Read(t)
		}
		if p := s.State; p != nil {
			plant(limit.BucketState{Tokens: p.Tokens, Rem: p.Rem, At: start + p.At, Until: start + p.Until, Micros: p.Micros})
		}
		for range max(1, s.Repeat) {
			now += s.Wait
			if s.Now != nil {
				now = start + *s.Now
			}
			want := limit.Verdict{
				Limit: l, Settings: current, Known: true,
				Allowed: s.Want.Allowed, Never: s.Want.Never, Remaining: s.Want.Remaining,
				RetryAfter: time.Duration(s.Want.RetryAfter) * time.Microsecond,
				ResetAfter: time.Duration(s.Want.ResetAfter) * time.Microsecond,
				Hold:       time.Duration(s.Want.Hold) * time.Microsecond,
			}
			if got := ask(now, current, time.Duration(s.MaxWait)*time.Microsecond, s.Cost); got != want {
				t.Fatalf("step %d, cost %d at %dµs: got %+v, want %+v", i+1, s.Cost, now-start, got, want)
			}
		}
	}
}

func (v Trace) begins(t *testing.T) int64 {
	t.Helper()
	if v.Begins == "" {
		return Start
	}
	at, err := time.Parse(time.RFC3339Nano, v.Begins)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// Read makes the settings. Any failure ends the test.
func (s *settings) Read(t *testing.T) *limit.Settings {
	t.Helper()
	made, err := s.make()
	if err != nil {
		t.Fatal(err)
	}
	return &made
}

func (s *settings) make() (made limit.Settings, err error) {
	switch s.Algorithm {
	case "", "token_bucket", "leaky_bucket":
		made.Algorithm = limit.TokenBucketAlgorithm
		if s.Algorithm == "leaky_bucket" {
			made.Algorithm = limit.LeakyBucketAlgorithm
		}
		made.Bucket, err = s.bucket()
		return made, err
	case "leaky_bucket_log":
		rate, err := limit.ParseRate(s.Rate)
		if err != nil {
			return made, err
		}
		return limit.NewLeakyBucketLog(rate.Rate, s.Burst)
	case "sliding_window_log":
		return limit.NewSlidingWindowLog(s.Limit, s.Window)
	case "sliding_window":
		return limit.NewSlidingWindow(s.Limit, s.Window)
	case "fixed_window":
		return s.fixed()
	case "concurrency":
		return limit.NewConcurrency(s.Limit, s.TTL)
	}
	return made, fmt.Errorf("no such algorithm: %s", s.Algorithm)
}

func (s *settings) bucket() (limit.TokenBucket, error) {
	initial := s.Burst
	if s.Initial != nil {
		initial = *s.Initial
	}
	if s.Refill != nil {
		return limit.NewDiscreteBucket(s.Refill.Tokens, s.Refill.Every, s.Burst, initial)
	}
	rate, err := limit.ParseRate(s.Rate)
	if err != nil {
		return limit.TokenBucket{}, err
	}
	return limit.NewTokenBucket(rate.Rate, s.Burst, initial)
}

func (s *settings) fixed() (limit.Settings, error) {
	if s.Period == "" {
		return limit.NewFixedWindow(s.Limit, s.Window)
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return limit.Settings{}, err
	}
	period := map[string]limit.Period{"day": limit.Day, "week": limit.Week, "month": limit.Month}[s.Period]
	return limit.NewCalendarWindow(s.Limit, period, zone)
}
