package remote

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/vectors"
)

// plant stores a state in the given form.
func (w *world) plant(key string, form limit.StateForm, s limit.BucketState) {
	w.do("DEL", key)
	if form == limit.StringState {
		w.do("SET", key, fmt.Sprintf("%d %d %d %d %d", s.Tokens, s.Rem, s.At, s.Until, s.Micros))
		return
	}
	command := []string{"HSET", key}
	for name, n := range map[string]int64{"tokens": s.Tokens, "rem": s.Rem, "at": s.At, "til": s.Until, "micros": s.Micros} {
		command = append(command, name, strconv.FormatInt(n, 10))
	}
	w.do(command...)
}

// replay runs one trace through the script, over a state of the given form.
func (w *world) replay(trace vectors.Trace, form limit.StateForm) {
	l := &limit.Limit{Name: "vector", Algorithm: limit.TokenBucketAlgorithm, State: form, Unit: limit.RequestsUnit}
	key := "rl:{vector:" + form.String() + "}"
	w.do("DEL", key)
	delete(w.dies, key)
	plant := func(s limit.BucketState) { w.plant(key, form, s) }
	trace.Replay(w.t, l, plant, func(now int64, settings *limit.Settings, cost int64) limit.Verdict {
		w.now = now
		return w.ask([]limit.Request{{Charges: []limit.Charge{{Limit: l, Settings: settings, Key: key, Cost: cost}}}})[0].Verdicts[0]
	})
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
	traces := vectors.Read(t, "../limit/testdata/token_bucket.json")
	for _, form := range []limit.StateForm{limit.HashState, limit.StringState} {
		t.Run(form.String(), func(t *testing.T) {
			w := newWorld(t, conn, 1)
			for _, trace := range traces {
				t.Run(trace.Name, func(t *testing.T) {
					w.t = t
					w.replay(trace, form)
				})
			}
		})
	}
}
