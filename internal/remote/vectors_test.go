package remote

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/vectors"
)

// plant stores a state in the given form.
func (w *world) plant(key string, form limit.StateForm, s limit.BucketState) {
	w.do("DEL", key)
	if form == limit.StringState {
		w.do("SET", key, packed(w.t, float64(s.Tokens), float64(s.Rem), float64(s.At), float64(s.Until), float64(s.Micros)))
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
	l := &limit.Limit{Name: "vector", State: form, Unit: limit.RequestsUnit}
	key := "rl:{vector:" + form.String() + "}"
	w.do("DEL", key)
	delete(w.dies, key)
	trace.Replay(w.t, l, vectors.Store{
		Key:   key,
		Plant: func(s limit.BucketState) { w.plant(key, form, s) },
		Ask: func(now int64, r *limit.Request) (limit.Verdict, limit.Lease) {
			w.now = now
			d := w.ask([]limit.Request{*r})[0]
			return d.Verdicts[0], append(d.Leases, limit.Lease{})[0]
		},
		Forget: func(now int64, c limit.Charge) {
			w.now = now
			w.forget(c)
		},
	})
}

// TestScriptVectors runs the traces that the arithmetic in Go is held to through the script on a
// real Redis.
func TestScriptVectors(t *testing.T) {
	conn := dial(t)
	files, err := filepath.Glob("../limit/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	w := newWorld(t, conn, 1)
	for _, file := range files {
		for _, form := range []limit.StateForm{limit.HashState, limit.StringState} {
			for _, trace := range vectors.Read(t, file) {
				t.Run(fmt.Sprint(filepath.Base(file), "/", form, "/", trace.Name), func(t *testing.T) {
					w.t = t
					w.replay(trace, form)
				})
			}
		}
	}
}
