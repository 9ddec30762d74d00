package load

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Arrivals is what a load at a constant rate saw. Nothing in it waits for an answer before it asks again,
// so a server that stalls cannot hide the questions that would have come meanwhile.
type Arrivals struct {
	Answers, Failures int64         // Failures are errors and statuses of 400 or more
	Took              time.Duration // until the last question left: the span, if the pace was kept
	P50, P99          time.Duration // from a question's leaving to its answer
	DueP50, DueP99    time.Duration // from when it was due to leave, so the client's own delay is in it
}

// Arrive asks rate questions a second for span, evenly spaced, over the Unix socket of a server. On a machine
// that cannot keep the pace it asks all the same questions, late, and takes longer.
func Arrive(ctx context.Context, deck Deck, rate int, span time.Duration, socket string) (Arrivals, error) {
	return arrive(ctx, deck, rate, span, vegeta.UnixSocket(socket))
}

// ArriveAt asks the same in the same way, but answer takes each question instead of a server. It is called
// concurrently.
func ArriveAt(ctx context.Context, deck Deck, rate int, span time.Duration, answer func(context.Context, []byte) error) (Arrivals, error) {
	return arrive(ctx, deck, rate, span, vegeta.Client(&http.Client{Transport: answering(answer)}))
}

func arrive(ctx context.Context, deck Deck, rate int, span time.Duration, to func(*vegeta.Attacker)) (Arrivals, error) {
	attacker := vegeta.NewAttacker(to)
	stop := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer stop()
	pace := evenly{vegeta.ConstantPacer{Freq: rate, Per: time.Second}, uint64(span.Seconds() * float64(rate))}
	var results []*vegeta.Result
	began := time.Now()
	for result := range attacker.Attack(deck.targets(), pace, endless, "") {
		results = append(results, result)
	}
	if err := ctx.Err(); err != nil {
		return Arrivals{}, fmt.Errorf("load: %w", err)
	}
	return summarize(results, began, rate)
}

// targets hands out the questions one after the other.
func (d Deck) targets() vegeta.Targeter {
	var next atomic.Int64
	header := http.Header{"Content-Type": {"application/json"}}
	return func(target *vegeta.Target) error {
		body := d[int(next.Add(1)-1)%len(d)]
		*target = vegeta.Target{Method: http.MethodPost, URL: "http://bench" + Path, Body: body, Header: header.Clone()}
		return nil
	}
}

// endless leaves it to the pace when an attack ends: at the end of a span vegeta would drop the questions that
// are late by then, which are the ones that count.
const endless = 0

// evenly spaces a constant pace: time.Sleep, with which vegeta waits, often sleeps for a whole
// millisecond, after which two questions would leave at once.
type evenly struct {
	vegeta.ConstantPacer
	questions uint64 // after as many it ends
}

func (e evenly) Pace(elapsed time.Duration, hits uint64) (wait time.Duration, stop bool) {
	if hits >= e.questions {
		return 0, true
	}
	wait, stop = e.ConstantPacer.Pace(elapsed, hits)
	Pause(wait)
	return 0, stop
}

// summarize takes the n-th question to have been due n intervals after began, as vegeta paces them.
func summarize(results []*vegeta.Result, began time.Time, rate int) (Arrivals, error) {
	if len(results) == 0 {
		return Arrivals{}, fmt.Errorf("load: vegeta got no answer")
	}
	slices.SortFunc(results, func(a, b *vegeta.Result) int { return int(a.Seq) - int(b.Seq) })
	every := time.Second / time.Duration(rate)
	a := Arrivals{Answers: int64(len(results)), Took: results[len(results)-1].Timestamp.Sub(began)}
	waits, due := make([]time.Duration, len(results)), make([]time.Duration, len(results))
	for i, r := range results {
		if r.Error != "" || r.Code >= statusFailure {
			a.Failures++
		}
		waits[i] = r.Latency
		late := r.Timestamp.Sub(began) - time.Duration(i+1)*every
		due[i] = r.Latency + max(0, late)
	}
	slices.Sort(waits)
	slices.Sort(due)
	a.P50, a.P99 = percentile(waits, 50), percentile(waits, 99)
	a.DueP50, a.DueP99 = percentile(due, 50), percentile(due, 99)
	return a, nil
}
