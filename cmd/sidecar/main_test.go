package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// binary is the built sidecar that the tests run.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

// testMain builds the binary, with the race detector when the tests have it.
func testMain(m *testing.M) int {
	if spec := os.Getenv(streamClient); spec != "" {
		return runStreamClient(spec)
	}
	dir, err := os.MkdirTemp("", "sidecar")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sidecar")
	args := []string{"build", "-buildvcs=false", "-ldflags", "-X main.version=v9.8.7-test", "-o", binary}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// newCommand prepares a run of the binary, which is killed when ctx ends.
func newCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, binary, args...)
	// The race detector would hold up every exit by a second.
	command.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	return command
}

// result is what a finished command left.
type result struct {
	code           int
	stdout, stderr string
}

// sidecar runs a command to its end. One that does not end by itself is killed.
func sidecar(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	command := newCommand(ctx, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want compares a result; stdout and stderr are parts of what is there, and empty means nothing.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	matches := func(got, want string) bool {
		return strings.Contains(got, want) && (want != "" || got == "")
	}
	if r.code != code || !matches(r.stdout, stdout) || !matches(r.stderr, stderr) {
		t.Errorf("got code %d\nstdout %q\nstderr %q\nwant code %d\nstdout %q\nstderr %q",
			r.code, r.stdout, r.stderr, code, stdout, stderr)
	}
}

func TestCommands(t *testing.T) {
	tests := []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"help"}, 0, "sidecar serve [--config FILE]", ""},
		{[]string{"-h"}, 0, "sidecar serve [--config FILE]", ""},
		{[]string{"--help"}, 0, "sidecar serve [--config FILE]", ""},
		{[]string{"serve", "-h"}, 0, "-config", ""},
		{[]string{"validate", "-h"}, 0, "sidecar validate FILE", ""},
		{[]string{"check", "-h"}, 0, "-timeout", ""},
		{[]string{"version", "-h"}, 0, "sidecar version", ""},
		{[]string{"version"}, 0, "sidecar v9.8.7-test, go1.", ""},
		{[]string{"--version"}, 0, "sidecar v9.8.7-test", ""},
		{[]string{"version", "now"}, 2, "", "sidecar: version takes no arguments\n"},
		{[]string{"frobnicate"}, 2, "", `sidecar: there is no command "frobnicate"; see sidecar help` + "\n"},
		{[]string{"serve", "--frobnicate"}, 2, "", "flag provided but not defined: -frobnicate; see sidecar serve -h"},
		{[]string{"serve", "file.yaml"}, 2, "", "sidecar: serve takes no arguments; the config is --config FILE\n"},
		{[]string{"validate"}, 2, "", "sidecar: validate takes one FILE\n"},
		{[]string{"validate", "a", "b"}, 2, "", "sidecar: validate takes one FILE\n"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			sidecar(t, tt.args...).want(t, tt.code, tt.stdout, tt.stderr)
		})
	}
}
