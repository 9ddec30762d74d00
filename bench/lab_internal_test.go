package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/bench/internal/load"
	"github.com/tidegate/tidegate/bench/internal/report"
)

// TestMain lets the test binary be the servers that the benchmark runs itself as.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == modeYardstick || os.Args[1] == modeProxy) {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// startLab builds the sidecar, and starts what every scenario needs.
func startLab(t *testing.T) *lab {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sidecar")
	build := exec.Command("go", "build", "-C", "..", "-buildvcs=false", "-o", binary, "./cmd/sidecar")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	l, err := newLab(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.dir); !os.IsNotExist(err) {
			t.Errorf("the temporary folder is still there: %v", err)
		}
	})
	return l
}

// TestMeasure runs small scenarios from end to end: all kinds of contestants, over TCP and a Unix socket;
// and those that must give no numbers.
func TestMeasure(t *testing.T) {
	l := startLab(t)
	small := plan{rounds: 1, run: time.Second, sweepRounds: 1}
	allowed := outcome{"allowed", "redis"}
	good := scenario{name: "good", deck: load.Uniform(someKey, 100), want: allowed, connections: 8, contestants: []contestant{
		{name: "sidecar", kind: sidecar, limits: stringLimit}, {name: "far", kind: sidecar, limits: hashLimit, store: farRedis},
		{name: "bare", kind: bare}, {name: "script", kind: evalsha}}}
	sockets := scenario{name: "sockets", deck: load.One(oneKey), want: outcome{"denied", "local"}, connections: 2, ownClient: true, short: true,
		contestants: []contestant{{name: "sidecar", kind: sidecar, limits: deniedLimit, unix: true}}}
	for _, s := range []scenario{good, sockets} {
		results := &report.Results{}
		if err := l.measure(t.Context(), s, small, results); err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		for _, c := range s.contestants {
			p := report.Point{Scenario: s.name, Contestant: c.name, Connections: s.connections}
			for name, field := range map[string]func(report.Sample) float64{"rate": report.PerSecond, "p50": report.P50, "p99": report.P99, "CPU": report.CPU} {
				if value, err := results.Median(p, field); err != nil || value <= 0 {
					t.Errorf("%s, %s: %s is %v, %v", s.name, c.name, name, value, err)
				}
			}
			calls, _ := results.Median(p, report.Calls) // the point is there, as the rate was
			least, most := scriptCalls(c)
			if calls < least || calls > most {
				t.Errorf("%s, %s: Redis ran %v scripts per decision, want %v to %v", s.name, c.name, calls, least, most)
			}
		}
	}
	for name, tt := range map[string]struct {
		limits string
		want   outcome
		error  string
	}{
		"none denied":               {hotLimit, outcome{"denied", "redis"}, "answers: 0 of 400 and above where"},
		"another tier":              {hotLimit, outcome{"allowed", "lease"}, "no answer is of tier lease"},
		"a config that is refused":  {"limits:\n  - {name: users, rate: 1/h, mode: loose}\n", allowed, "mode is loose"},
		"a limit that is not there": {"limits:\n  - {name: others, rate: 1/h}\n", allowed, "no answer is of tier redis"},
	} {
		s := scenario{name: name, deck: load.One(oneKey), want: tt.want, connections: 8,
			contestants: []contestant{{name: "sidecar", kind: sidecar, limits: tt.limits}}}
		if err := l.measure(t.Context(), s, small, &report.Results{}); err == nil || !strings.Contains(err.Error(), tt.error) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.error)
		}
	}
}

// scriptCalls is how often a contestant of TestMeasure may have Redis run a script for a decision. When a run
// ends, questions under way were not answered yet.
func scriptCalls(c contestant) (least, most float64) {
	switch {
	case c.kind == evalsha:
		return 1, 1.1
	case c.kind == bare:
		return 0, 0
	case c.limits == deniedLimit: // it is asked once a second
		return 0, 0.1
	}
	return 0.01, 1.1
}
