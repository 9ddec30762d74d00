package main

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/bench/internal/load"
	"github.com/tidegate/tidegate/bench/internal/report"
)

const before = `# TYPE tidegate_requests_total counter
tidegate_requests_total{policy="",result="allowed",tier="redis"} 5
tidegate_requests_total{policy="",result="denied",tier="local"} 3
tidegate_requests_totally{policy="",result="allowed",tier="redis"} 9
`

const after = `tidegate_requests_total{policy="",result="allowed",tier="redis"} 1.5e+06
tidegate_requests_total{policy="users",result="allowed",tier="redis"} 10
tidegate_requests_total{policy="",result="denied",tier="local"} 3
`

func TestCounters(t *testing.T) {
	a, err := parseCounters(before)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parseCounters(after)
	if err != nil {
		t.Fatal(err)
	}
	grown := b.since(a)
	if n := grown[outcome{"allowed", "redis"}]; n != 1_500_005 || len(grown) != 1 || grown.total() != n {
		t.Errorf("got %+v", grown)
	}
	if c, err := parseCounters(`tidegate_requests_total{policy="",result="a",tier="b"} x`); err == nil {
		t.Errorf("got %+v, want an error", c)
	}
}

// TestCheck: what a sidecar may have decided in each kind of scenario.
func TestCheck(t *testing.T) {
	local, lease := outcome{"denied", "local"}, outcome{"allowed", "lease"}
	redis, embedded := outcome{"allowed", "redis"}, outcome{"allowed", "embedded"}
	for name, tt := range map[string]struct {
		want    outcome
		decided counters
		bad     string // part of the error
	}{
		"all by Redis":              {redis, counters{redis: 9}, ""},
		"denied, asked again":       {local, counters{local: 95, {"denied", "redis"}: 5}, ""},
		"denied, asked often":       {local, counters{local: 89, {"denied", "redis"}: 11}, "only 89 decisions of 100 were made by local"},
		"leased, the rest by Redis": {lease, counters{lease: 6, redis: 4}, ""},
		"mostly not leased":         {lease, counters{lease: 4, redis: 6}, "only 4 decisions of 10 were made by lease"},
		"one by Redis":              {embedded, counters{embedded: 9, redis: 1}, "only 9 decisions of 10 were made by embedded"},
		"one denial":                {redis, counters{redis: 9, {"denied", "redis"}: 1}, "1 decisions of 10 were denied by redis"},
		"one fallback":              {redis, counters{redis: 9, {"allowed", "fallback"}: 1}, "allowed by fallback"},
		"one error":                 {redis, counters{redis: 9, {"error", "none"}: 1}, "error by none"},
		"nothing":                   {redis, nil, "only 0 decisions"},
	} {
		err := tt.decided.check(tt.want)
		if (err == nil) != (tt.bad == "") || err != nil && !strings.Contains(err.Error(), tt.bad) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.bad)
		}
	}
}

func TestCheckAnswers(t *testing.T) {
	allowed, denied := outcome{"allowed", "redis"}, outcome{"denied", "local"}
	for _, tt := range []struct {
		result load.Result
		want   outcome
		ok     bool
	}{
		{load.Result{Answers: 9}, allowed, true},
		{load.Result{Answers: 9, Failures: 1}, allowed, false},
		{load.Result{Answers: 9, Broken: 1}, allowed, false},
		{load.Result{Answers: 9, Failures: 9}, denied, true},
		{load.Result{Answers: 9, Failures: 8}, denied, false},
	} {
		if err := checkAnswers(tt.result, tt.want); (err == nil) != tt.ok {
			t.Errorf("%+v, %+v: got %v", tt.result, tt.want, err)
		}
	}
}

func TestParseGo(t *testing.T) {
	const output = "goos: linux\nBenchmarkLocalDenial/hashed=false-2 \t 2461 \t 482.5 ns/op\t 0 B/op\t 0 allocs/op\n" +
		"BenchmarkLocalDenial/hashed=false-2 \t 2461 \t 401 ns/op\t 16 B/op\t 1 allocs/op\n" +
		"BenchmarkLocalDenial/hashed=true-2 \t 2461 \t 9 ns/op\t 16 B/op\t 7 allocs/op\nPASS\n"
	nanos, allocs, found, err := parseGo(output, "BenchmarkLocalDenial/hashed=false")
	if err != nil || !found || nanos != 401 || allocs != 1 {
		t.Errorf("got %v, %v, %v, %v", nanos, allocs, found, err)
	}
	if _, _, found, err := parseGo(output, "BenchmarkLocalLease"); found || err != nil {
		t.Errorf("a benchmark that did not run: got %v, %v", found, err)
	}
	if _, _, _, err := parseGo("BenchmarkX-2 1 5 ns/op\n", "BenchmarkX"); err == nil {
		t.Error("no allocations, no error")
	}
}

// TestRowsFitTheScenarios: every row of the table and every line of the figures names something that is
// measured, and the first contestant of a scenario is a sidecar, whose answer the yardsticks give.
func TestRowsFitTheScenarios(t *testing.T) {
	measured, all := &report.Results{}, scenarios()
	for _, s := range all {
		if s.contestants[0].kind != sidecar {
			t.Errorf("%s begins with %s", s.name, s.contestants[0].name)
		}
		connections := s.connections
		if connections == 0 {
			connections = usualConnections
		}
		for _, c := range s.contestants {
			measured.Add(report.Point{Scenario: s.name, Contestant: c.name, Connections: connections}, report.Sample{PerSecond: 1, P50: 1, P99: 1, CPU: 1, Calls: 1})
		}
	}
	for _, name := range []string{arrivalSidecar, arrivalDirect} {
		measured.Add(report.Point{Scenario: arrivalName, Contestant: name}, report.Sample{P50: 1, DueP50: 1})
	}
	for _, name := range []string{idleMemory, keptMemory, usualPeak} {
		measured.Set(name, 1)
	}
	for _, g := range goBenchmarks() {
		measured.Set(g.nanos(), 1)
		measured.Set(g.allocs(), 0)
	}
	for _, row := range rows() {
		if value, err := row.Measure(measured); err != nil || value != 1 && !strings.HasSuffix(row.Name, "allocations") {
			t.Errorf("%s: got %v, %v", row.Name, value, err)
		}
		if row.AtMost && row.Goal > row.Must || !row.AtMost && row.Goal < row.Must {
			t.Errorf("%s: the goal of %v is easier than the %v that must be", row.Name, row.Goal, row.Must)
		}
	}
	for _, line := range lines() {
		swept := false
		for _, s := range all {
			for _, c := range s.contestants {
				swept = swept || s.name == line.Scenario && c.name == line.Contestant && c.sweep
			}
		}
		if !swept {
			t.Errorf("%s: %s is not measured at every number of connections", line.Scenario, line.Contestant)
		}
	}
}

func TestConfig(t *testing.T) {
	l := &lab{stores: map[store]string{tcpRedis: "127.0.0.1:0", unixRedis: "/r.sock", nearRedis: "127.0.0.1:1", farRedis: "127.0.0.1:2"}}
	for at, want := range map[store]string{tcpRedis: `["127.0.0.1:0"]`, unixRedis: `["/r.sock"]`, nearRedis: `["127.0.0.1:1"]`, farRedis: `["127.0.0.1:2"]`, embedded: ""} {
		text := l.config(contestant{store: at, limits: hashLimit}, "/api.sock")
		if !strings.Contains(text, "unix: /api.sock") || !strings.HasSuffix(text, hashLimit) {
			t.Errorf("got %s", text)
		}
		if has := strings.Contains(text, "redis:"); has != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%q: got %s, want Redis at %s", at, text, want)
		}
	}
	want := "limits:\n  - {name: limit-0, rate: 3/m, burst: 1000000, key: [user], state: hash}\n" +
		"  - {name: limit-1, rate: 4/m, burst: 1000000, key: [user], state: hash}\npolicies:\n  users: {limits: [limit-0, limit-1]}\n"
	if got := policyOf(2, "hash"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
