package load

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed wrk.lua
var wrkScript []byte

// Result is what one run of a load saw.
type Result struct {
	Answers  int64         // answers of any status
	Failures int64         // answers whose status is 400 or more: for a load of denials, all of them
	Broken   int64         // questions without an answer: not sent, cut off, or later than the client's patience
	Took     time.Duration // from the first question to the last answer
	P50, P99 time.Duration // from a question to its answer
}

// PerSecond is the rate of answers.
func (r Result) PerSecond() float64 { return float64(r.Answers) / r.Took.Seconds() }

// Run is one run in a closed loop: every connection asks again as soon as it is answered.
type Run struct {
	Network     string // tcp or unix
	Address     string
	Connections int
	For         time.Duration
	Skip        int // how many questions of the deck to pass over
}

// Wrk is a deck, written for wrk.
type Wrk struct{ script, questions string }

// NewWrk writes the script and the deck into dir, which holds no other deck.
func NewWrk(dir string, deck Deck) (*Wrk, error) {
	w := &Wrk{script: filepath.Join(dir, "wrk.lua"), questions: filepath.Join(dir, "questions")}
	if err := errors.Join(os.WriteFile(w.script, wrkScript, 0o600), deck.Write(w.questions)); err != nil {
		return nil, fmt.Errorf("load: write the script: %w", err)
	}
	return w, nil
}

// Do runs wrk with one thread. The network is tcp, the time whole seconds: wrk knows no other.
func (w *Wrk) Do(ctx context.Context, run Run) (Result, error) {
	command := exec.CommandContext(ctx, "wrk", "--threads", "1", "--connections", strconv.Itoa(run.Connections),
		"--duration", fmt.Sprintf("%.0fs", run.For.Seconds()), "--timeout", "10s", "--script", w.script,
		"http://"+run.Address+Path, "--", w.questions, strconv.Itoa(run.Skip))
	output, err := command.CombinedOutput()
	if err != nil {
		return Result{}, fmt.Errorf("load: wrk: %w: %s", err, output)
	}
	return parseWrk(string(output))
}

// parseWrk reads the line that the script prints when wrk is done.
func parseWrk(output string) (Result, error) {
	numbers := map[string]int64{}
	for line := range strings.Lines(output) {
		report, ok := strings.CutPrefix(line, "bench: ")
		if !ok {
			continue
		}
		for _, field := range strings.Fields(report) {
			name, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return Result{}, fmt.Errorf("load: wrk: %s: %w", field, err)
			}
			numbers[name] = n
		}
	}
	for _, name := range []string{"answers", "micros", "p50", "p99", "failures", "connect", "read", "write", "timeout"} {
		if _, ok := numbers[name]; !ok {
			return Result{}, fmt.Errorf("load: wrk did not report %s: %s", name, output)
		}
	}
	if numbers["answers"] == 0 {
		return Result{}, fmt.Errorf("load: wrk got no answer: %s", output)
	}
	micros := func(name string) time.Duration { return time.Duration(numbers[name]) * time.Microsecond }
	return Result{
		Answers: numbers["answers"], Failures: numbers["failures"],
		Broken: numbers["connect"] + numbers["read"] + numbers["write"] + numbers["timeout"],
		Took:   micros("micros"), P50: micros("p50"), P99: micros("p99"),
	}, nil
}
