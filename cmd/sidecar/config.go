package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidegate/tidegate/internal/config"
)

// builtIn is the source of the config when no file is given.
const builtIn = "built-in example"

// loadConfig reads the file by load. What is wrong inside the file goes to stderr, one problem a
// line; the error then only counts.
func loadConfig(file string, load func() (*config.Config, error), stderr io.Writer) (*config.Config, error) {
	cfg, err := load()
	var problems config.Errors
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems)
		if len(problems) == 1 {
			return nil, fmt.Errorf("1 problem in %s", file)
		}
		return nil, fmt.Errorf("%d problems in %s", len(problems), file)
	}
	return cfg, err
}

const validateHelp = `Usage: sidecar validate FILE

Checks a config. Prints every problem as file:line:col to stderr and exits 1; without one, prints
what was understood, and to stderr what is probably not meant. The files that it names, as of
passwords and certificates, are not read.
`

func runValidate(args []string, stdout, stderr io.Writer) error {
	others, err := parse(newFlags("validate"), validateHelp, args, stdout)
	if err != nil {
		return err
	}
	if len(others) != 1 || others[0] == "" {
		return usageError("validate takes one FILE")
	}
	cfg, err := loadConfig(others[0], func() (*config.Config, error) { return config.Load(others[0]) }, stderr)
	if err != nil {
		return err
	}
	for _, warning := range cfg.Warnings {
		fmt.Fprintln(stderr, "warning:", warning)
	}
	cfg.Describe(stdout)
	return nil
}
