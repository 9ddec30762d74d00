// Package report turns what was measured into the tables and figures of bench/results. It measures
// nothing and keeps nothing.
package report

import (
	"fmt"
	"slices"
)

// Sample is what one run of one contestant showed. Waits are in milliseconds, CPU in microseconds.
type Sample struct {
	PerSecond      float64 // decisions a second
	P50, P99       float64 // from a question to its answer
	DueP50, DueP99 float64 // from when a question was due, at a constant arrival rate; else 0
	Calls          float64 // scripts that Redis ran per decision; 0 when it was not asked
	CPU            float64 // of the server per decision
}

// Point is where a sample belongs.
type Point struct {
	Scenario, Contestant string
	Connections          int
}

// Results is everything that one run of the benchmark measured. The zero value is empty. Not safe for
// concurrent use.
type Results struct {
	points   []Point // in the order of their first sample
	samples  map[Point][]Sample
	values   map[string]float64
	failures []Failure
}

// Failure is a scenario that gave no numbers, and why.
type Failure struct {
	Scenario string
	Err      error
}

// Add keeps one more run of a contestant.
func (r *Results) Add(p Point, s Sample) {
	if r.samples == nil {
		r.samples = map[Point][]Sample{}
	}
	if len(r.samples[p]) == 0 {
		r.points = append(r.points, p)
	}
	r.samples[p] = append(r.samples[p], s)
}

// Set keeps a number that is measured once.
func (r *Results) Set(name string, value float64) {
	if r.values == nil {
		r.values = map[string]float64{}
	}
	r.values[name] = value
}

// Fail keeps why a scenario gave no numbers. What it gave before it failed is forgotten: a run with an
// answer that was not expected is no measurement, nor are the others beside it.
func (r *Results) Fail(scenario string, err error) {
	r.failures = append(r.failures, Failure{scenario, err})
	r.points = slices.DeleteFunc(r.points, func(p Point) bool {
		if p.Scenario != scenario {
			return false
		}
		delete(r.samples, p)
		return true
	})
}

// Failures lists the scenarios that failed.
func (r *Results) Failures() []Failure { return r.failures }

// Value returns a number that a scenario measures once.
func (r *Results) Value(scenario, name string) (float64, error) {
	if value, ok := r.values[name]; ok {
		return value, nil
	}
	return 0, r.missing(scenario)
}

// Median returns the median of a field over the runs at a point.
func (r *Results) Median(p Point, field func(Sample) float64) (float64, error) {
	if len(r.samples[p]) == 0 {
		return 0, r.missing(p.Scenario)
	}
	var all []float64
	for _, s := range r.samples[p] {
		all = append(all, field(s))
	}
	return median(all), nil
}

// Ratio returns the median, over the rounds, of a field at one point divided by the same at another: the
// two were measured one after the other, so what slows the machine for a while slows both.
func (r *Results) Ratio(over, under Point, field func(Sample) float64) (float64, error) {
	a, b := r.samples[over], r.samples[under]
	if len(a) == 0 {
		return 0, r.missing(over.Scenario)
	}
	if len(b) == 0 {
		return 0, r.missing(under.Scenario)
	}
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, field(a[i])/field(b[i]))
	}
	return median(all), nil
}

func (r *Results) missing(name string) error {
	for _, f := range r.failures {
		if f.Scenario == name {
			return fmt.Errorf("failed")
		}
	}
	return fmt.Errorf("not run")
}

// median returns the middle number, or the mean of the two in the middle.
func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
