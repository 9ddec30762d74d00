package report_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/bench/internal/report"
)

var (
	fast = report.Point{Scenario: "hot", Contestant: "bare", Connections: 64}
	slow = report.Point{Scenario: "hot", Contestant: "sidecar", Connections: 64}
)

func perSecond(s report.Sample) float64 { return s.PerSecond }

// measured holds three rounds of two contestants, of which the machine was slow in the second.
func measured() *report.Results {
	r := &report.Results{}
	for _, n := range []float64{100_000, 10_000, 100_000} {
		r.Add(fast, report.Sample{PerSecond: n, P50: 0.5, P99: 4, CPU: 8})
		r.Add(slow, report.Sample{PerSecond: n * 0.6, P50: 1, P99: 5, CPU: 16, Calls: 0.04})
	}
	return r
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		all  []float64
		want float64
	}{{[]float64{7}, 7}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 100, 1, 3}, 3.5}} {
		r := &report.Results{}
		for _, n := range tt.all {
			r.Add(fast, report.Sample{PerSecond: n})
		}
		if got, err := r.Median(fast, perSecond); err != nil || got != tt.want {
			t.Errorf("%v: got %v, %v, want %v", tt.all, got, err, tt.want)
		}
	}
}

// TestRatio: the median is of the rounds' ratios, not the ratio of medians.
func TestRatio(t *testing.T) {
	r := &report.Results{}
	for _, pair := range [][2]float64{{50, 100}, {9, 10}, {60, 100}} {
		r.Add(slow, report.Sample{PerSecond: pair[0]})
		r.Add(fast, report.Sample{PerSecond: pair[1]})
	}
	if got, err := r.Ratio(slow, fast, perSecond); err != nil || got != 0.6 {
		t.Errorf("got %v, %v, want 0.6", got, err)
	}
}

// TestFail: a scenario that failed has no numbers, others keep theirs.
func TestFail(t *testing.T) {
	r := measured()
	other := report.Point{Scenario: "keys", Contestant: "bare", Connections: 64}
	r.Add(other, report.Sample{PerSecond: 1})
	r.Set("idle", 14)
	r.Fail("hot", errors.New("7 answers\nwere 503"))
	if _, err := r.Median(fast, perSecond); err == nil || err.Error() != "failed" {
		t.Errorf("got %v", err)
	}
	if _, err := r.Ratio(other, slow, perSecond); err == nil || err.Error() != "failed" {
		t.Errorf("got %v", err)
	}
	if _, err := r.Value("memory", "churn"); err == nil || err.Error() != "not run" {
		t.Errorf("got %v", err)
	}
	if got, err := r.Median(other, perSecond); err != nil || got != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if text := report.Markdown(report.Heading{}, nil, r); !strings.Contains(text, "- hot: 7 answers were 503\n") || strings.Contains(text, "| hot |") {
		t.Errorf("got %s", text)
	}
}

func TestVerdict(t *testing.T) {
	least, most := report.Row{Must: 0.5, Goal: 0.6}, report.Row{Must: 2.5, Goal: 1.8, AtMost: true}
	for _, tt := range []struct {
		row   report.Row
		value float64
		want  string
	}{
		{least, 0.49, "short"}, {least, 0.5, "ok"}, {least, 0.6, "ok, goal reached"}, {least, math.NaN(), "short"},
		{most, 2.51, "short"}, {most, 2.5, "ok"}, {most, 1.8, "ok, goal reached"}, {most, math.NaN(), "short"},
		{report.Row{AtMost: true}, 0, "ok, goal reached"}, {report.Row{AtMost: true}, 1, "short"},
	} {
		if got := tt.row.Verdict(tt.value); got != tt.want {
			t.Errorf("%v of %+v: got %s, want %s", tt.value, tt.row, got, tt.want)
		}
	}
}

// TestMarkdown pins the lines of the tables.
func TestMarkdown(t *testing.T) {
	r := measured()
	r.Add(report.Point{Scenario: "arrival", Contestant: "sidecar"}, report.Sample{PerSecond: 2000, P50: 0.1, P99: 0.2, DueP50: 0.3, DueP99: 12})
	r.Set("idle", 14.27)
	rows := []report.Row{
		{Name: "hot ÷ bare", Must: 0.55, Goal: 0.65, Measure: func(r *report.Results) (float64, error) { return r.Ratio(slow, fast, perSecond) }},
		{Name: "idle", Must: 25, Goal: 25, AtMost: true, Unit: " MB", Measure: func(r *report.Results) (float64, error) { return r.Value("memory", "idle") }},
		{Name: "churn", Must: 500, Goal: 500, AtMost: true, Unit: " MB", Measure: func(r *report.Results) (float64, error) { return r.Value("memory", "churn") }},
	}
	text := report.Markdown(report.Heading{Facts: []report.Fact{{Name: "Go", Value: "go1.26"}, {Name: "command", Value: "`bench -only a|b`"}}, Notes: []string{"A note."}}, rows, r)
	for _, line := range []string{
		"| Go | go1.26 |", "| command | `bench -only a\\|b` |", "A note.",
		"| hot ÷ bare | 0.6 | ≥ 0.55 | ≥ 0.65 | ok |",
		"| idle | 14.3 MB | ≤ 25 MB | ≤ 25 MB | ok, goal reached |",
		"| churn | – | ≤ 500 MB | ≤ 500 MB | not run |",
		"| hot | bare | 64 | 3 | 100000 | 0.5 | 4 | – | 8 |",
		"| hot | sidecar | 64 | 3 | 60000 | 1 | 5 | 0.04 | 16 |",
		"| arrival | sidecar | 1 | 2000 | 0.1 | 0.2 | 0.3 | 12 |",
		"![throughput.svg](throughput.svg)",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, text)
		}
	}
}

// TestFigures draws what was measured, and lines without samples too.
func TestFigures(t *testing.T) {
	r := measured()
	for _, n := range []int{1, 256} {
		r.Add(report.Point{Scenario: "hot", Contestant: "bare", Connections: n}, report.Sample{PerSecond: 20_000, P50: 0.04, P99: 0.1, CPU: 9})
	}
	lines := []report.Line{{Name: "nothing decided", Scenario: "hot", Contestant: "bare"}, {Name: "absent", Scenario: "x", Contestant: "y"}}
	for _, results := range []*report.Results{r, {}} {
		figures, err := report.Figures(lines, results)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"throughput.svg", "latency.svg", "calls.svg", "cpu.svg"} {
			svg := string(figures[name])
			if !strings.HasPrefix(svg, "<?xml") || strings.Contains(svg, "absent") {
				t.Errorf("%s: got %.100q", name, svg)
			}
			if wants := results == r && name != "calls.svg"; strings.Contains(svg, "nothing decided") != wants {
				t.Errorf("%s: its legend has the line: %t, want %t", name, !wants, wants)
			}
		}
	}
}
