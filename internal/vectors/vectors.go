// Package vectors reads the golden traces that every implementation of an algorithm is held to: the
// arithmetic in limit, the embedded store, and the script on Redis. It is for tests alone.
package vectors

import (
	"bytes"
	"encoding/json"
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
	Steps    []step
}

type settings struct {
	Rate    string  // as in the config; or
	Refill  *refill // a discrete one
	Burst   int64
	Initial *int64 // nil means Burst
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
	Repeat   int // make the step so many times; 0 means once
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

// Replay makes the steps of the trace on one key of a store: plant puts a state there, ask decides a
// charge of the given limit at a time, in µs since 1970.
func (v Trace) Replay(t *testing.T, l *limit.Limit, plant func(limit.BucketState), ask func(now int64, settings *limit.Settings, cost int64) limit.Verdict) {
	t.Helper()
	current, now := v.Settings.read(t), int64(Start)
	for i, s := range v.Steps {
		if s.Settings != nil {
			current = s.Settings.read(t)
		}
		if p := s.State; p != nil {
			plant(limit.BucketState{Tokens: p.Tokens, Rem: p.Rem, At: Start + p.At, Until: Start + p.Until, Micros: p.Micros})
		}
		for range max(1, s.Repeat) {
			now += s.Wait
			if s.Now != nil {
				now = Start + *s.Now
			}
			want := limit.Verdict{
				Limit: l, Settings: current, Known: true,
				Allowed: s.Want.Allowed, Never: s.Want.Never, Remaining: s.Want.Remaining,
				RetryAfter: time.Duration(s.Want.RetryAfter) * time.Microsecond,
				ResetAfter: time.Duration(s.Want.ResetAfter) * time.Microsecond,
			}
			if got := ask(now, current, s.Cost); got != want {
				t.Fatalf("step %d, cost %d at %dµs: got %+v, want %+v", i+1, s.Cost, now-Start, got, want)
			}
		}
	}
}

func (s *settings) read(t *testing.T) *limit.Settings {
	t.Helper()
	initial := s.Burst
	if s.Initial != nil {
		initial = *s.Initial
	}
	var bucket limit.TokenBucket
	var err error
	if s.Refill != nil {
		bucket, err = limit.NewDiscreteBucket(s.Refill.Tokens, s.Refill.Every, s.Burst, initial)
	} else {
		var rate limit.ParsedRate
		if rate, err = limit.ParseRate(s.Rate); err == nil {
			bucket, err = limit.NewTokenBucket(rate.Rate, s.Burst, initial)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return &limit.Settings{Bucket: bucket}
}
