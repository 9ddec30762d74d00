package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/bench/internal/report"
)

const goBenchName = "Go benchmarks"

// goBenchmark is a benchmark of this repository whose numbers are in the table of ratios.
type goBenchmark struct {
	title string
	pkg   string
	name  string // with its sub-benchmark, as go test prints it without the number of processors
}

// goBenchmarks are whole decisions without a network: found, resolved, decided, counted.
func goBenchmarks() []goBenchmark {
	return []goBenchmark{
		{"local denial", "./internal/local", "BenchmarkLocalDenial/hashed=false"},
		{"answer from a lease", "./internal/local", "BenchmarkLocalLease"},
	}
}

func (g goBenchmark) nanos() string  { return g.title + ", ns" }
func (g goBenchmark) allocs() string { return g.title + ", allocations" }

// measureGo runs the Go benchmarks, in the root of the repository, which is the working folder. One that
// the repository does not have leaves its lines without numbers.
func measureGo(ctx context.Context, results *report.Results) error {
	for _, g := range goBenchmarks() {
		pattern := "^" + strings.ReplaceAll(g.name, "/", "$/^") + "$"
		command := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchmem", "-benchtime", "0.5s", "-count", "3", g.pkg)
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", g.name, err, output)
		}
		nanos, allocs, found, err := parseGo(string(output), g.name)
		if err != nil {
			return err
		}
		if found {
			results.Set(g.nanos(), nanos)
			results.Set(g.allocs(), allocs)
		}
	}
	return nil
}

// parseGo returns the fewest ns/op of a benchmark's runs, for a busy machine only adds, and the most
// allocs/op, if it ran.
func parseGo(output, name string) (nanos, allocs float64, found bool, err error) {
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) == 0 || withoutProcessors(fields[0]) != name {
			continue
		}
		ns, errNanos := valueOf(fields, "ns/op")
		n, errAllocs := valueOf(fields, "allocs/op")
		if errNanos != nil || errAllocs != nil {
			return 0, 0, false, fmt.Errorf("%s: cannot read %q", name, line)
		}
		if !found || ns < nanos {
			nanos = ns
		}
		allocs, found = max(allocs, n), true
	}
	return nanos, allocs, found, nil
}

// withoutProcessors takes the GOMAXPROCS away that go test adds, as in BenchmarkX-2.
func withoutProcessors(name string) string {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return name
	}
	if _, err := strconv.Atoi(name[at+1:]); err != nil {
		return name
	}
	return name[:at]
}

// valueOf returns the number before a unit.
func valueOf(fields []string, unit string) (float64, error) {
	for i := 1; i < len(fields); i++ {
		if fields[i] == unit {
			return strconv.ParseFloat(fields[i-1], 64)
		}
	}
	return 0, fmt.Errorf("no %s", unit)
}
