package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tidegate/tidegate/bench/internal/report"
)

// describe gathers what a reader needs to compare two reports: the machine, every version, the command.
func describe(ctx context.Context, o options, now time.Time) (report.Heading, error) {
	model, err := processorModel()
	if err != nil {
		return report.Heading{}, err
	}
	load, err := loadAverage()
	if err != nil {
		return report.Heading{}, err
	}
	facts := []report.Fact{
		{Name: "date", Value: now.UTC().Format("2006-01-02 15:04 UTC")},
		{Name: "command", Value: "`" + strings.Join(os.Args, " ") + "`"},
		{Name: "commit", Value: commit(ctx)},
		{Name: "machine", Value: fmt.Sprintf("%s, %d processors", model, runtime.NumCPU())},
		{Name: "load average before", Value: load},
		{Name: "Go", Value: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
	}
	for _, program := range []struct {
		name    string
		command []string
	}{
		{"kernel", []string{"uname", "-sr"}},
		{"Redis", []string{"redis-server", "--version"}},
		{"wrk", []string{"wrk", "--version"}},
		{"sidecar", []string{o.sidecar, "version"}},
	} {
		line, err := firstLine(ctx, program.command)
		if err != nil {
			return report.Heading{}, err
		}
		facts = append(facts, report.Fact{Name: program.name, Value: line})
	}
	facts = append(facts, modules()...)
	note := fmt.Sprintf("Clients, servers and Redis share the machine, so compare ratios and not rates. Medians of %d runs of %v; "+
		"a ratio is the median of the rounds' ratios.", o.plan.rounds, o.plan.run)
	return report.Heading{Facts: facts, Notes: []string{note}}, nil
}

// commit names what is checked out here, which is what was built, if the binary was built by make.
func commit(ctx context.Context) string {
	// The checkout may belong to another user, as it often does in a container.
	name, err := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown: not in a Git checkout"
	}
	return strings.TrimSpace(string(name))
}

// firstLine runs a program for the first line that it prints; wrk exits with 1 after its version.
func firstLine(ctx context.Context, command []string) (string, error) {
	output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	line, _, _ := strings.Cut(string(output), "\n")
	if line == "" {
		return "", fmt.Errorf("%s prints no version: %w", command[0], err)
	}
	return strings.TrimSpace(line), nil
}

// modules are the versions of the libraries that the yardsticks and the load are made of.
func modules() []report.Fact {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var facts []report.Fact
	for _, name := range []string{"tsenart/vegeta/v12", "valyala/fasthttp", "redis/go-redis/v9", "go-redis/redis_rate/v10"} {
		for _, module := range build.Deps {
			if module.Path == "github.com/"+name {
				facts = append(facts, report.Fact{Name: name, Value: module.Version})
			}
		}
	}
	return facts
}

// loadAverage is how many processes ran or waited for a processor, on average over the last minute.
func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load, nil
}

// processorModel is what the kernel calls the processor; some architectures have no name for theirs.
func processorModel() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model), nil
		}
	}
	return runtime.GOARCH, nil
}
