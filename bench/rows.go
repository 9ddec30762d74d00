package main

import "github.com/tidegate/tidegate/bench/internal/report"

// lines are what the figures show.
func lines() []report.Line {
	return []report.Line{
		{Name: "bare handler, nothing decided", Scenario: keysName, Contestant: "bare"},
		{Name: deniedName, Scenario: deniedName, Contestant: "sidecar"},
		{Name: leasedHotName, Scenario: leasedHotName, Contestant: "sidecar"},
		{Name: hotName, Scenario: hotName, Contestant: "sidecar"},
		{Name: keysName, Scenario: keysName, Contestant: "sidecar, hash"},
		{Name: "one EVALSHA a request, 100,000 keys", Scenario: keysName, Contestant: "one EVALSHA each"},
	}
}

// rows is the table of ratios: what each has to be, and what it is to become.
func rows() []report.Row {
	all := []report.Row{
		faster("denied locally ÷ bare", deniedName, "sidecar", "bare", 0.85, 0.95),
		faster("leased, one hot key, hold 100 ms ÷ bare", leasedHotName, "sidecar", "bare", 0.80, 0.90),
		faster("leased, 1,000 keys, hold 1 s ÷ bare", leasedName, "sidecar", "bare", 0.80, 0.90),
		faster("strict, one hot key ÷ bare", hotName, "sidecar", "bare", 0.55, 0.65),
		faster("strict, 100,000 keys, hash ÷ bare", keysName, "sidecar, hash", "bare", 0.42, 0.50),
		faster("strict, 100,000 keys, string ÷ bare", keysName, "sidecar, string", "bare", 0.45, 0.55),
		faster("strict, 100,000 keys, hash ÷ one EVALSHA a request", keysName, "sidecar, hash", "one EVALSHA each", 1.5, 1.8),
		faster("strict, 100,000 keys, string ÷ one EVALSHA a request", keysName, "sidecar, string", "one EVALSHA each", 1.5, 1.8),
		faster("policy of four limits ÷ of one, hash", policyName, "four limits, hash", "one limit, hash", 0.40, 0.60),
		faster("policy of four limits ÷ of one, string", policyName, "four limits, string", "one limit, string", 0.50, 0.60),
		{Name: "Redis 1 ms away ÷ no delay, 256 connections", Must: 0.70, Goal: 0.90, Measure: ratio(
			report.Point{Scenario: farName, Contestant: "1 ms away", Connections: 256},
			report.Point{Scenario: farName, Contestant: "no delay", Connections: 256}, report.PerSecond)},
		calls("script calls per decision, strict, one hot key", hotName, "sidecar", 0.10, 0.05),
		calls("script calls per decision, leased, one hot key", leasedHotName, "sidecar", 0.001, 0.001),
		calls("script calls per decision, strict, 100,000 keys, hash", keysName, "sidecar, hash", 0.15, 0.05),
		calls("script calls per decision, strict, 100,000 keys, string", keysName, "sidecar, string", 0.15, 0.05),
		processor("CPU per decision ÷ bare's, denied locally", deniedName, "sidecar", 1.4, 1.2),
		processor("CPU per decision ÷ bare's, strict, 100,000 keys, hash", keysName, "sidecar, hash", 2.5, 2.0),
		{Name: "p50 at 2,000 questions/s, Unix sockets ÷ one EVALSHA", Must: 2.5, Goal: 1.8, AtMost: true, Measure: ratio(
			report.Point{Scenario: arrivalName, Contestant: arrivalSidecar},
			report.Point{Scenario: arrivalName, Contestant: arrivalDirect}, report.P50)},
		single("memory, idle", idleMemory, memoryName, " MB", 25, 25),
		single("memory, 1,000,000 keys churning, all kept", keptMemory, memoryName, " MB", 500, 500),
		single("memory, 1,000,000 keys churning, max_keys 100,000", usualPeak, memoryName, " MB", 500, 500),
	}
	for _, g := range goBenchmarks() {
		all = append(all,
			single(g.title+", in the process", g.nanos(), goBenchName, " ns", 400, 250),
			single(g.title+", in the process, allocations", g.allocs(), goBenchName, "", 0, 0))
	}
	return all
}

func at64(scenario, contestant string) report.Point {
	return report.Point{Scenario: scenario, Contestant: contestant, Connections: usualConnections}
}

func ratio(over, under report.Point, field func(report.Sample) float64) func(*report.Results) (float64, error) {
	return func(r *report.Results) (float64, error) { return r.Ratio(over, under, field) }
}

// faster compares decisions a second.
func faster(name, scenario, over, under string, must, goal float64) report.Row {
	return report.Row{Name: name, Must: must, Goal: goal, Measure: ratio(at64(scenario, over), at64(scenario, under), report.PerSecond)}
}

// processor compares processor time with that of the scenario's bare handler.
func processor(name, scenario, contestant string, must, goal float64) report.Row {
	return report.Row{Name: name, Must: must, Goal: goal, AtMost: true,
		Measure: ratio(at64(scenario, contestant), at64(scenario, "bare"), report.CPU)}
}

func calls(name, scenario, contestant string, must, goal float64) report.Row {
	return report.Row{Name: name, Must: must, Goal: goal, AtMost: true, Measure: func(r *report.Results) (float64, error) {
		return r.Median(at64(scenario, contestant), report.Calls)
	}}
}

// single is a number that part measures once.
func single(name, value, part, unit string, must, goal float64) report.Row {
	return report.Row{Name: name, Must: must, Goal: goal, AtMost: true, Unit: unit, Measure: func(r *report.Results) (float64, error) {
		return r.Value(part, value)
	}}
}
