package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tidegate/tidegate/bench/internal/report"
)

// options are the flags of the benchmark.
type options struct {
	plan    plan
	quick   bool
	sidecar string
	out     string
	only    *regexp.Regexp
}

func parseOptions(args []string) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	o := options{plan: fullPlan()}
	var only string
	flags.BoolVar(&o.quick, "quick", false, "measure less, in two minutes")
	flags.StringVar(&o.sidecar, "sidecar", "bin/sidecar", "the `binary` to measure")
	flags.StringVar(&o.out, "out", "bench/results", "the `folder` of the report and its figures")
	flags.StringVar(&only, "only", "", "measure only the scenarios whose names match this `pattern`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("there is no mode %q", flags.Arg(0))
	}
	if o.quick {
		o.plan = quickPlan()
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	return o, nil
}

// runBench measures everything in turn. A scenario that fails leaves its lines without numbers, and the
// others go on; the report is written, and the error says that it has gaps.
func runBench(ctx context.Context, args []string) error {
	began := time.Now()
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	heading, err := describe(ctx, o, began)
	if err != nil {
		return err
	}
	l, err := newLab(o.sidecar)
	if err != nil {
		return err
	}
	distances, err := l.distances()
	if err != nil {
		return errors.Join(err, l.close())
	}
	heading.Facts = append(heading.Facts, distances)
	results := &report.Results{}
	for _, part := range parts(l, o.plan) {
		if !o.only.MatchString(part.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(began).Seconds(), part.name)
		if err := part.measure(ctx, results); err != nil {
			results.Fail(part.name, err)
			fmt.Fprintf(os.Stderr, "       failed: %v\n", err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := l.close(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	heading.Facts = append(heading.Facts, report.Fact{Name: "took", Value: time.Since(began).Round(time.Second).String()})
	if err := write(o.out, heading, results); err != nil {
		return err
	}
	if n := len(results.Failures()); n > 0 {
		return fmt.Errorf("%d scenarios failed; the report has gaps", n)
	}
	return nil
}

// part is something to measure by itself.
type part struct {
	name    string
	measure func(context.Context, *report.Results) error
}

func parts(l *lab, p plan) []part {
	var all []part
	for _, s := range scenarios() {
		all = append(all, part{s.name, func(ctx context.Context, results *report.Results) error {
			return l.measure(ctx, s, p, results)
		}})
	}
	return append(all,
		part{arrivalName, func(ctx context.Context, results *report.Results) error { return l.measureArrivals(ctx, p, results) }},
		part{memoryName, func(ctx context.Context, results *report.Results) error { return l.measureMemory(ctx, p, results) }},
		part{goBenchName, measureGo},
	)
}

// write writes the report and its figures into dir, and the report to stdout.
func write(dir string, heading report.Heading, results *report.Results) error {
	figures, err := report.Figures(lines(), results)
	if err != nil {
		return err
	}
	text := report.Markdown(heading, rows(), results)
	fmt.Print(text)
	err = os.MkdirAll(dir, 0o755)
	for name, svg := range figures {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), svg, 0o644))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "README.md"), []byte(text), 0o644))
}
