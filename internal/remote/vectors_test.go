package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
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

// plant stores a state in the limit's form.
func (w *world) plant(key string, form limit.StateForm, st *vectorState) {
	numbers := []int64{st.Tokens, st.Rem, vectorStart + st.At, vectorStart + st.Until, st.Micros}
	w.do("DEL", key)
	if form == limit.StringState {
		w.do("SET", key, fmt.Sprintf("%d %d %d %d %d", numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]))
		return
	}
	command := []string{"HSET", key}
	for i, name := range []string{"tokens", "rem", "at", "til", "micros"} {
		command = append(command, name, strconv.FormatInt(numbers[i], 10))
	}
	w.do(command...)
}

// replay runs one trace through the script, over a state of the given form.
func (w *world) replay(v vector, form limit.StateForm) {
	l := &limit.Limit{Name: "vector", Algorithm: limit.TokenBucketAlgorithm, State: form, Unit: limit.RequestsUnit}
	settings, key := &limit.Settings{Bucket: v.Settings.bucket(w.t)}, "rl:{vector:"+form.String()+"}"
	w.do("DEL", key)
	delete(w.dies, key)
	w.now = vectorStart
	for i, step := range v.Steps {
		if step.Settings != nil {
			settings = &limit.Settings{Bucket: step.Settings.bucket(w.t)}
		}
		if step.State != nil {
			w.plant(key, form, step.State)
		}
		for range max(1, step.Repeat) {
			w.now += step.Wait
			if step.Now != nil {
				w.now = vectorStart + *step.Now
			}
			decisions := w.ask([]limit.Request{{Charges: []limit.Charge{{Limit: l, Settings: settings, Key: key, Cost: step.Cost}}}})
			want := limit.Verdict{
				Limit: l, Settings: settings, Known: true,
				Allowed: step.Want.Allowed, Never: step.Want.Never, Remaining: step.Want.Remaining,
				RetryAfter: time.Duration(step.Want.RetryAfter) * time.Microsecond,
				ResetAfter: time.Duration(step.Want.ResetAfter) * time.Microsecond,
			}
			if got := decisions[0].Verdicts; len(got) != 1 || got[0] != want {
				w.t.Fatalf("step %d, cost %d at %dµs: got %+v, want %+v", i+1, step.Cost, w.now-vectorStart, got, want)
			}
		}
	}
}

// TestScriptVectors runs the traces that the arithmetic in Go is held to through the script on a
// real Redis.
func TestScriptVectors(t *testing.T) {
	server := redistest.Start(t)
	conn, err := redistest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	vectors := readVectors(t)
	for _, form := range []limit.StateForm{limit.HashState, limit.StringState} {
		t.Run(form.String(), func(t *testing.T) {
			w := newWorld(t, conn, 1)
			for _, v := range vectors {
				t.Run(v.Name, func(t *testing.T) {
					w.t = t
					w.replay(v, form)
				})
			}
		})
	}
}
