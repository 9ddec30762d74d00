package config_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
)

// inForce is the time in which a change must have been reported.
const inForce = 2 * time.Second

// follower runs a watcher and keeps what it says, in order: "apply" and the names of the limits,
// or "reject" and the error.
type follower struct {
	*config.Watcher
	path string
	said chan string
}

// follow watches the file until the test ends; prepare may change the watcher before it runs.
func follow(t *testing.T, path string, prepare ...func(*config.Watcher)) *follower {
	t.Helper()
	f := &follower{path: path, said: make(chan string, 1000)}
	f.Watcher = config.NewWatcher(path,
		func(c *config.Config) { f.said <- "apply " + names(c) },
		func(err error) { f.said <- "reject " + err.Error() })
	for _, change := range prepare {
		change(f.Watcher)
	}
	if _, err := f.Load(); err != nil {
		t.Fatal(err)
	}
	f.run(t)
	return f
}

func (f *follower) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(inForce):
			t.Error("Run did not return")
		}
		for len(f.said) > 0 {
			t.Errorf("unexpected at the end: %s", <-f.said)
		}
	})
}

// want waits for the next thing that the watcher says.
func (f *follower) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-f.said:
		if got != want {
			t.Fatalf("\n got %s\nwant %s", got, want)
		}
	case <-time.After(inForce):
		t.Fatalf("nothing within %v, want %s", inForce, want)
	}
}

// quiet waits for d, in which the watcher must say nothing.
func (f *follower) quiet(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case got := <-f.said:
		t.Fatalf("%s, want nothing", got)
	case <-time.After(d):
	}
}

func names(c *config.Config) string {
	var list []string
	for _, l := range c.Rules.Limits {
		list = append(list, l.Name)
	}
	return strings.Join(list, ",")
}

// limits is a config with limits of these names.
func limits(names ...string) string {
	text := "limits:\n"
	for _, name := range names {
		text += "  - name: " + name + "\n    rate: 10/s\n"
	}
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o644))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFile makes a config with the limit a in a folder of its own.
func newFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidegate.yaml")
	write(t, path, limits("a"))
	return path
}
