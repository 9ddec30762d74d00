package config_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/config"
)

var update = flag.Bool("update", false, "write the messages and descriptions in testdata anew")

// parse reads text, and fails the test when it is refused.
func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("refused:\n%v", err)
	}
	return c
}

// refused returns the message of a file that must be refused.
func refused(t *testing.T, text string) string {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err == nil {
		var d strings.Builder
		c.Describe(&d)
		t.Fatalf("accepted:\n%s", d.String())
	}
	var problems config.Errors
	if !errors.As(err, &problems) {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	return err.Error()
}

// golden compares got with the file, or writes it when -update is given.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

func yamlFiles(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata/%s: %v", folder, err)
	}
	return files
}

// TestBadFiles holds each refused file against its exact message, beside it.
func TestBadFiles(t *testing.T) {
	for _, file := range yamlFiles(t, "bad") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = config.Parse(filepath.Base(file), data)
			if err == nil {
				t.Fatal("accepted")
			}
			checkPositions(t, err, data)
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

// TestGoodFiles holds what is understood of each accepted file against the description beside it,
// warnings first.
func TestGoodFiles(t *testing.T) {
	for _, file := range yamlFiles(t, "good") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.Parse(filepath.Base(file), data)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			for _, w := range c.Warnings {
				got.WriteString(w.String() + "\n")
			}
			c.Describe(&got)
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", got.String())
		})
	}
}

func TestLoad(t *testing.T) {
	folder := t.TempDir()
	good := filepath.Join(folder, "good.yaml")
	if err := os.WriteFile(good, []byte("limits: [{name: a, rate: 10/s}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(good)
	if err != nil || len(c.Rules.Limits) != 1 {
		t.Errorf("Load(good) = %v, %v", c, err)
	}

	bad := filepath.Join(folder, "bad.yaml")
	if err := os.WriteFile(bad, []byte("limits: [{name: a, rate: 10/s, brust: 5}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := bad + `:1:32: unknown key "brust": did you mean burst?`
	if _, err = config.Load(bad); err == nil || err.Error() != want {
		t.Errorf("Load(bad)\n got %v\nwant %s", err, want)
	}

	if _, err = config.Load(filepath.Join(folder, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of no file: %v", err)
	}
	if _, err = config.Load(folder); err == nil {
		t.Error("Load of a folder: no error")
	}

	large := filepath.Join(folder, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), 2<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	want = large + ":1:1: the file is larger than 4 MiB: write fewer limits, with globs and overrides"
	if _, err = config.Load(large); err == nil || err.Error() != want {
		t.Errorf("Load(large)\n got %v\nwant %s", err, want)
	}
}
