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

	Hold int64 `json:"hold_us"` // of a leased limit
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

	Reports []report // of what was on lease
	Borrow  int64    // how many tokens to borrow
	Forget  bool     // forget the key, in place of asking
}

// report is a limit.LeaseReport; its epoch and slot count from those in which the trace began.
type report struct {
	Epoch              int64 `json:"epoch_us"`
	Slot, Used, Unused int64
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

	Out   int64
	Lease lease
}

// lease is a limit.Lease, with numbers like a report's.
type lease struct {
	Epoch        int64 `json:"epoch_us"`
	Slot, Tokens int64
	Usable       int64 `json:"usable_us"`
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

// Store is a store with one key. Times are in µs since 1970.
type Store struct {
	Key    string
	Plant  func(limit.BucketState)                                        // puts a token bucket's state under the key
	Ask    func(now int64, r *limit.Request) (limit.Verdict, limit.Lease) // decides a request with one charge and at most one order
	Forget func(now int64, c limit.Charge)
}

// Replay makes the steps of the trace on the key of a store.
func (v Trace) Replay(t *testing.T, l *limit.Limit, store Store) {
	t.Helper()
	start := v.begins(t)
	current, now := v.Settings.Read(t), start
	for i, s := range v.Steps {
		if s.Settings != nil {
			current = s.Settings.Read(t)
		}
		if p := s.State; p != nil {
			store.Plant(limit.BucketState{Tokens: p.Tokens, Rem: p.Rem, At: start + p.At, Until: start + p.Until, Micros: p.Micros})
		}
		for range max(1, s.Repeat) {
			now += s.Wait
			if s.Now != nil {
				now = start + *s.Now
			}
			charge := limit.Charge{Limit: l, Settings: current, Key: store.Key, Cost: s.Cost}
			if s.Forget {
				store.Forget(now, charge)
				continue
			}
			r := &limit.Request{Charges: []limit.Charge{charge}, MaxWait: micros(s.MaxWait), Orders: s.orders(&charge, start)}
			got, lease := store.Ask(now, r)
			if want := s.Want.verdict(&charge); got != want {
				t.Fatalf("step %d, cost %d at %dµs: got %+v, want %+v", i+1, s.Cost, now-start, got, want)
			}
			if want := s.Want.Lease.of(current, start); lease != want {
				t.Fatalf("step %d, at %dµs: got %+v, want %+v", i+1, now-start, lease, want)
			}
		}
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// orders returns what the step says of leases.
func (s *step) orders(c *limit.Charge, start int64) []limit.LeaseOrder {
	if len(s.Reports) == 0 && s.Borrow == 0 {
		return nil
	}
	o := limit.LeaseOrder{Limit: c.Limit, Settings: c.Settings, Key: c.Key, Want: s.Borrow}
	for _, r := range s.Reports {
		o.Reports = append(o.Reports, limit.LeaseReport{
			Epoch: start + r.Epoch, Slot: start/c.Settings.Hold + r.Slot, Used: r.Used, Unused: r.Unused,
		})
	}
	return []limit.LeaseOrder{o}
}

func (w *want) verdict(c *limit.Charge) limit.Verdict {
	return limit.Verdict{
		Limit: c.Limit, Settings: c.Settings, Known: true,
		Allowed: w.Allowed, Never: w.Never, Remaining: w.Remaining, Out: w.Out,
		RetryAfter: micros(w.RetryAfter), ResetAfter: micros(w.ResetAfter), Hold: micros(w.Hold),
	}
}

func (l *lease) of(s *limit.Settings, start int64) limit.Lease {
	if l.Tokens == 0 {
		return limit.Lease{}
	}
	return limit.Lease{Epoch: start + l.Epoch, Slot: start/s.Hold + l.Slot, Tokens: l.Tokens, Usable: micros(l.Usable)}
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
	if err == nil && s.Hold > 0 {
		made, err = made.Leased(s.Hold)
	}
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
