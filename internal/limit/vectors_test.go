package limit_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// vector is one trace of testdata/token_bucket.json, worked out by hand. What a step leaves out
// is zero. The same file is run over local.Memory and the script on Redis.
type vector struct {
	Name     string
	Settings vectorSettings
	Steps    []vectorStep
}

type vectorSettings struct {
	Rate    string        // as in the config; or
	Refill  *vectorRefill // a discrete one
	Burst   int64
	Initial *int64 // nil means Burst
}

type vectorRefill struct {
	Tokens int64
	Every  int64 `json:"every_us"`
}

type vectorStep struct {
	Settings *vectorSettings // in force from this step on
	State    *vectorState    // takes the place of the stored one before this step
	Now      *int64          `json:"now_us"` // since the trace began; nil means Wait after the step before
	Wait     int64           `json:"wait_us"`
	Cost     int64
	Repeat   int // make the step so many times; 0 means once
	Want     vectorWant
}

// vectorState is a stored state; its times count from when the trace began.
type vectorState struct {
	Tokens, Rem, Micros int64
	At                  int64 `json:"at_us"`
	Until               int64 `json:"until_us"`
}

type vectorWant struct {
	Allowed, Never bool
	Remaining      int64
	RetryAfter     int64 `json:"retry_after_us"`
	ResetAfter     int64 `json:"reset_after_us"`
}

// vectorStart is when every trace begins, in µs since 1970.
const vectorStart = 1_780_000_000_000_000

func readVectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/token_bucket.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func (s vectorSettings) bucket(t *testing.T) limit.TokenBucket {
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
	return bucket
}

// store is one key of a store: what a store does around the arithmetic.
type store struct{ state limit.BucketState }

// ask decides, charges and reports as a store does.
func (s *store) ask(b *limit.TokenBucket, now, cost int64) vectorWant {
	next, wait, moved := b.Decide(s.state, now, cost)
	if wait != 0 {
		cost = 0
	}
	if cost > 0 || moved {
		next = b.Charge(next, cost)
		s.state = next
	}
	return vectorWant{
		Allowed: wait == 0, Never: wait == limit.Never,
		Remaining: next.Tokens, RetryAfter: max(0, wait), ResetAfter: b.TimeToFull(next),
	}
}

func TestTokenBucketVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			bucket, now := v.Settings.bucket(t), int64(vectorStart)
			var s store
			for i, step := range v.Steps {
				if step.Settings != nil {
					bucket = step.Settings.bucket(t)
				}
				if st := step.State; st != nil {
					s.state = limit.BucketState{Tokens: st.Tokens, Rem: st.Rem, At: vectorStart + st.At, Until: vectorStart + st.Until, Micros: st.Micros}
				}
				for range max(1, step.Repeat) {
					now += step.Wait
					if step.Now != nil {
						now = vectorStart + *step.Now
					}
					if got := s.ask(&bucket, now, step.Cost); got != step.Want {
						t.Fatalf("step %d, cost %d at %dµs: got %+v, want %+v", i+1, step.Cost, now-vectorStart, got, step.Want)
					}
				}
			}
		})
	}
}
