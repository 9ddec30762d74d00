package report

import (
	"fmt"
	"math"
	"strings"
)

// Row is a line of the table of ratios: what was measured against what must be reached, and what is to be.
type Row struct {
	Name       string
	Must, Goal float64
	AtMost     bool // both are upper bounds; else lower ones
	Unit       string
	Measure    func(*Results) (float64, error)
}

// Verdict says whether a measured value is short of what must be, or else whether it reaches the goal.
func (row Row) Verdict(value float64) string {
	reaches := func(bound float64) bool {
		if row.AtMost {
			return value <= bound
		}
		return value >= bound
	}
	switch {
	case math.IsNaN(value) || !reaches(row.Must):
		return "short"
	case reaches(row.Goal):
		return "ok, goal reached"
	}
	return "ok"
}

// table writes the rows as Markdown.
func table(rows []Row, results *Results) string {
	var b strings.Builder
	b.WriteString("| scenario | measured | must | goal | |\n| --- | ---: | ---: | ---: | --- |\n")
	for _, row := range rows {
		sign := "≥"
		if row.AtMost {
			sign = "≤"
		}
		measured, verdict := "–", ""
		value, err := row.Measure(results)
		if err != nil {
			verdict = err.Error()
		} else {
			measured, verdict = number(value)+row.Unit, row.Verdict(value)
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s %s | %s |\n", row.Name, measured,
			sign, number(row.Must)+row.Unit, sign, number(row.Goal)+row.Unit, verdict)
	}
	return b.String()
}

// number writes a value with three digits that matter, and none of them beyond the point from 100 on.
func number(value float64) string {
	if math.Abs(value) >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	if value != 0 && math.Abs(value) < 0.0001 {
		return fmt.Sprintf("%.6f", value)
	}
	return fmt.Sprintf("%.3g", value)
}
