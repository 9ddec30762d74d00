package report

import (
	"fmt"
	"strings"
)

// Heading is what stands above the tables.
type Heading struct {
	Facts []Fact // of the machine, the versions and the run, in order
	Notes []string
}

// Fact is one thing to know of a run.
type Fact struct{ Name, Value string }

// Markdown writes the whole report. Its figures are those of Figures.
func Markdown(h Heading, rows []Row, results *Results) string {
	var b strings.Builder
	b.WriteString("# Benchmark\n\nWritten by `make bench`; [bench/README.md](../README.md) says what each line is.\n\n")
	b.WriteString("| | |\n| --- | --- |\n")
	for _, fact := range h.Facts {
		value := strings.ReplaceAll(fact.Value, "|", `\|`) // else it would end the cell
		fmt.Fprintf(&b, "| %s | %s |\n", fact.Name, value)
	}
	for _, note := range h.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	fmt.Fprintf(&b, "\n## Ratios\n\n%s", table(rows, results))
	if len(results.failures) > 0 {
		b.WriteString("\n## Failed\n\nThese gave no numbers.\n\n")
		for _, f := range results.failures {
			fmt.Fprintf(&b, "- %s: %s\n", f.Scenario, strings.ReplaceAll(f.Err.Error(), "\n", " "))
		}
	}
	fmt.Fprintf(&b, "\n## Medians\n\n%s", medians(results))
	if arrivals := arrivals(results); arrivals != "" {
		fmt.Fprintf(&b, "\n## At a constant arrival rate\n\n%s", arrivals)
	}
	b.WriteString("\n## Figures\n\n")
	for _, name := range figureNames() {
		fmt.Fprintf(&b, "![%s](%s)\n\n", name, name)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// medians lists every point in a closed loop.
func medians(results *Results) string {
	var b strings.Builder
	b.WriteString("| scenario | who | connections | runs | decisions/s | p50, ms | p99, ms | script calls per decision | CPU per decision, µs |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, p := range results.points {
		s := results.middle(p)
		if s.DueP50 > 0 {
			continue
		}
		calls := "–"
		if s.Calls > 0 {
			calls = number(s.Calls)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %.0f | %s | %s | %s | %s |\n", p.Scenario, p.Contestant, p.Connections,
			len(results.samples[p]), s.PerSecond, number(s.P50), number(s.P99), calls, number(s.CPU))
	}
	return b.String()
}

// arrivals lists every point of a constant arrival rate.
func arrivals(results *Results) string {
	var b strings.Builder
	for _, p := range results.points {
		s := results.middle(p)
		if s.DueP50 == 0 {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("| scenario | who | runs | questions/s | p50, ms | p99, ms | p50 from due, ms | p99 from due, ms |\n" +
				"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.0f | %s | %s | %s | %s |\n", p.Scenario, p.Contestant, len(results.samples[p]),
			s.PerSecond, number(s.P50), number(s.P99), number(s.DueP50), number(s.DueP99))
	}
	return b.String()
}

// middle returns the median of each field over the runs at a point.
func (r *Results) middle(p Point) Sample {
	of := func(field func(Sample) float64) float64 {
		value, _ := r.Median(p, field) // every point in points has a sample
		return value
	}
	return Sample{
		PerSecond: of(PerSecond), P50: of(P50), P99: of(P99), Calls: of(Calls), CPU: of(CPU),
		DueP50: of(func(s Sample) float64 { return s.DueP50 }), DueP99: of(func(s Sample) float64 { return s.DueP99 }),
	}
}

// The fields of a sample, for Median and Ratio.
func PerSecond(s Sample) float64 { return s.PerSecond }
func P50(s Sample) float64       { return s.P50 }
func P99(s Sample) float64       { return s.P99 }
func Calls(s Sample) float64     { return s.Calls }
func CPU(s Sample) float64       { return s.CPU }
