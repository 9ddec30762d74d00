package config_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/limit"
)

// checkPositions fails the test unless err is a list of problems, one line each, in the order of
// their positions, which are all inside data.
func checkPositions(t *testing.T, err error, data []byte) {
	t.Helper()
	var problems config.Errors
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	normal := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(data), "\uFEFF"))
	lines := strings.Split(normal, "\n")
	var before config.Problem
	for _, p := range problems {
		if p.Line < 1 || p.Line > len(lines) || p.Col < 1 || p.Col > utf8.RuneCountInString(lines[p.Line-1])+1 {
			t.Errorf("%v: outside the file", p)
		}
		if p.Line < before.Line || p.Line == before.Line && p.Col < before.Col {
			t.Errorf("%v comes after %v", p, before)
		}
		if strings.ContainsFunc(p.Text, func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(p.Text, ": ") {
			t.Errorf("%v: is no line that says what, and what to write instead", p)
		}
		before = p
	}
}

// FuzzParse looks for a file that makes Parse panic, or that is refused without a place in it.
func FuzzParse(f *testing.F) {
	f.Add(config.BuiltinYAML)
	folders := []string{"good", "bad"}
	for _, folder := range folders {
		entries, err := os.ReadDir("testdata/" + folder)
		if err != nil {
			f.Fatal(err)
		}
		for _, entry := range entries {
			data, err := os.ReadFile("testdata/" + folder + "/" + entry.Name())
			if err != nil {
				f.Fatal(err)
			}
			if strings.HasSuffix(entry.Name(), ".yaml") {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("fuzz.yaml", data)
		if err != nil {
			checkPositions(t, err, data)
			return
		}
		var text strings.Builder
		c.Describe(&text)
		if len(c.Rules.Limits) == 0 || text.Len() == 0 {
			t.Error("a config without a limit was accepted")
		}
		for _, l := range c.Rules.Limits {
			if l.Name == "" || l.Unit == "" || !sound(&l.Settings) {
				t.Errorf("limit %+v was accepted", l)
			}
			for _, o := range l.Overrides {
				if !o.Exempt && !sound(&o.Settings) || o.Settings.Algorithm != l.Settings.Algorithm ||
					!o.Exempt && (o.Settings.Window.Micros != l.Settings.Window.Micros || o.Settings.Window.Zone != l.Settings.Window.Zone) {
					t.Errorf("override %+v was accepted on %+v", o, l)
				}
			}
		}
	})
}

// sound reports whether requests can be decided with s.
func sound(s *limit.Settings) bool {
	b, w := &s.Bucket, &s.Window
	if c := s.Capacity(); c < 0 || c > limit.MaxNumber || b.Burst < 0 || b.Initial > b.Burst {
		return false
	}
	switch s.Algorithm {
	case limit.TokenBucketAlgorithm, limit.LeakyBucketAlgorithm, limit.LeakyBucketLogAlgorithm:
		return b.Tokens > 0 && b.Micros > 0 && b.Grain > 0
	case limit.FixedWindowAlgorithm:
		return (w.Period != 0) == (w.Zone != nil) && (w.Period != 0) != (w.Micros > 0)
	case limit.SlidingWindowAlgorithm:
		return w.Micros > 0 && w.Unit > 0 && w.Units > 0
	case limit.SlidingWindowLogAlgorithm:
		return w.Micros > 0
	case limit.ConcurrencyAlgorithm:
		return s.Slots.TTL > 0
	}
	return false
}
