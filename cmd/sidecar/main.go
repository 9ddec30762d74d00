// Command sidecar serves rate-limit decisions beside an application, checks its config, and asks
// a running sidecar. It is wiring: what it wires is in the internal packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// version is set at build with -ldflags "-X main.version=v1.2.3".
var version = "dev"

// The exit codes of every command; check has meanings of its own for them in its help.
const (
	exitFailed = 1
	exitUsage  = 2
)

// exitError ends the process with a code of its own. A nil err says nothing: the command has
// told all there is.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	if err := run(untilSignal(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		exit := &exitError{code: exitFailed, err: err}
		errors.As(err, &exit)
		if exit.err != nil {
			fmt.Fprintln(os.Stderr, "sidecar:", exit.err)
		}
		os.Exit(exit.code)
	}
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT. The second one ends
// the process at once. Its goroutine lives as long as the process, so it is for main alone.
func untilSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		fmt.Fprintln(os.Stderr, "sidecar: second signal: requests under way are abandoned")
		os.Exit(exitFailed)
	}()
	return ctx
}

const help = `Tidegate is a rate limiter that runs beside your application.

Usage:

  sidecar serve [--config FILE]   answer requests (the default command)
  sidecar validate FILE           check a config and show what was understood
  sidecar check NAME key=value…   ask a running sidecar
  sidecar version                 say what this is
  sidecar help                    say this

"sidecar COMMAND -h" tells the flags of a command.
`

// run runs one command. Its error, if any, says what main is to print and exit with.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	command := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	} else if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
		command = "help"
	} else if len(args) > 0 && slices.Contains([]string{"-version", "--version"}, args[0]) {
		command, args = "version", args[1:]
	}
	switch command {
	case "serve":
		return runServe(ctx, args, stdout, stderr)
	case "validate":
		return runValidate(args, stdout, stderr)
	case "check":
		return runCheck(ctx, args, stdout)
	case "version":
		return runVersion(args, stdout)
	case "help":
		_, err := io.WriteString(stdout, help)
		return err
	default:
		return usageError("there is no command %q; see sidecar help", command)
	}
}
