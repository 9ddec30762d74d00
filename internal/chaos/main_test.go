// Package chaos_test is the fault suite: it runs the built sidecar, without the race detector, on
// a real redis-server behind a fault proxy, asks it at a constant rate from outside, and checks
// what callers see while Redis fails in every way that is known, and after. It holds tests only.
//
// The short form (go test -short) takes each fault briefly and allows for a busy machine. The long
// form holds the times that the project promises when -strict asks for it, as `make chaos` does,
// and writes what it saw as a Markdown table to the file of -report.
package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var (
	strict     = flag.Bool("strict", false, "hold the promised times, which needs an otherwise idle machine")
	reportFile = flag.String("report", "", "write the results of the faults as a Markdown table to this `file`")
)

// binary is the built sidecar that the tests run.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sidecar")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../../cmd/sidecar").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// form is how long and how hard the suite tests.
type form struct {
	rate    int           // requests per second
	warm    time.Duration // of load before a fault
	fault   time.Duration // how long a fault lasts
	settle  time.Duration // of load after the recovery
	openFor time.Duration // breaker.open_for
	timeout time.Duration // redis.timeout
	slack   time.Duration // by how much the worst answer may be later than timeout
}

// formOf returns the form that was asked for.
func formOf() form {
	f := form{
		rate: 500, warm: time.Second, fault: 6 * time.Second, settle: time.Second,
		openFor: 2 * time.Second, timeout: 100 * time.Millisecond, slack: time.Second,
	}
	if testing.Short() {
		f.rate, f.warm, f.fault, f.settle = 250, 200*time.Millisecond, 700*time.Millisecond, 200*time.Millisecond
		f.openFor = 300 * time.Millisecond
	}
	if *strict {
		f.timeout, f.slack = 50*time.Millisecond, 100*time.Millisecond
	}
	return f
}

// tailSlack is by how much the answer at the 99.9th percentile may be later than timeout; it is
// held in the strict form only.
const tailSlack = 10 * time.Millisecond

// shareMachine lets a test of the short form, which mostly waits, run beside others.
func shareMachine(t *testing.T) {
	if testing.Short() {
		t.Parallel()
	}
}
