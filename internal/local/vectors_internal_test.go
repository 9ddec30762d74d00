package local

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// vector is one trace of limit's testdata, worked out by hand: see the test there. What a step
// leaves out is zero.
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
	text, err := os.ReadFile("../limit/testdata/token_bucket.json")
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

// plant puts a state under key, as if a request had left it there.
func (m *Memory) plant(key string, bucket limit.BucketState) {
	s := &state{key: key, bucket: bucket, due: bucket.Until}
	m.states.Add(key, s)
	m.expiry.push(s)
}

// replay runs one trace through a Memory of its own.
func replay(t *testing.T, v vector) {
	m := newMemory(t, 0)
	l := &limit.Limit{Name: "vector", Algorithm: limit.TokenBucketAlgorithm, Unit: limit.RequestsUnit}
	settings, now := &limit.Settings{Bucket: v.Settings.bucket(t)}, int64(vectorStart)
	for i, step := range v.Steps {
		if step.Settings != nil {
			settings = &limit.Settings{Bucket: step.Settings.bucket(t)}
		}
		if st := step.State; st != nil {
			m.plant("key", limit.BucketState{
				Tokens: st.Tokens, Rem: st.Rem, At: vectorStart + st.At, Until: vectorStart + st.Until, Micros: st.Micros,
			})
		}
		for range max(1, step.Repeat) {
			now += step.Wait
			if step.Now != nil {
				now = vectorStart + *step.Now
			}
			got := ask(m, now, limit.Charge{Limit: l, Settings: settings, Key: "key", Cost: step.Cost}).Verdicts
			want := limit.Verdict{
				Limit: l, Settings: settings, Known: true,
				Allowed: step.Want.Allowed, Never: step.Want.Never, Remaining: step.Want.Remaining,
				RetryAfter: time.Duration(step.Want.RetryAfter) * time.Microsecond,
				ResetAfter: time.Duration(step.Want.ResetAfter) * time.Microsecond,
			}
			if len(got) != 1 || got[0] != want {
				t.Fatalf("step %d, cost %d at %dµs: got %+v, want %+v", i+1, step.Cost, now-vectorStart, got, want)
			}
		}
	}
}

func TestMemoryVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) { replay(t, v) })
	}
}
