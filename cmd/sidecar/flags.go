package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// errHelped says that a command has printed its help, which is all that was asked of it.
var errHelped = &exitError{code: 0}

func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// newFlags returns a flag set that prints nothing by itself.
func newFlags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// parse reads a command's flags, which may stand before, between and after its other arguments,
// and returns those. After "--" nothing is a flag. With -h it prints about and the flags to
// stdout and returns errHelped.
func parse(flags *flag.FlagSet, about string, args []string, stdout io.Writer) ([]string, error) {
	var others []string
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, about)
			flags.SetOutput(stdout)
			flags.PrintDefaults()
			return nil, errHelped
		}
		if err != nil {
			return nil, usageError("%w; see sidecar %s -h", err, flags.Name())
		}
		rest := flags.Args()
		if end := len(args) - len(rest); len(rest) == 0 || end > 0 && args[end-1] == "--" {
			return append(others, rest...), nil
		}
		others, args = append(others, rest[0]), rest[1:]
	}
}
