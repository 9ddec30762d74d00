package limit_test

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "", false},
		{"gpt-5", "gpt-5", true},
		{"gpt-5", "GPT-5", false},
		{"gpt-5", "gpt-50", false},
		{"*", "", true},
		{"*", "anything at all", true},
		{"**", "", true},
		{"gpt-*", "gpt-", true},
		{"gpt-*", "gpt-5-mini", true},
		{"gpt-*", "o-gpt-5", false},
		{"*-mini", "gpt-5-mini", true},
		{"*-mini", "gpt-5-mini-2", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"a**c", "abc", true},
		{"?", "a", true},
		{"?", "", false},
		{"?", "ab", false},
		{"a?c", "abc", true},
		{"?*", "", false},
		{"*?", "ab", true},
		{"*a?", "aab", true},
		{"?", "Å", false}, // a byte, and it has two
		{"??", "Å", true},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`\?`, "?", true},
		{`\?`, "a", false},
		{`\\`, `\`, true},
		{`\a`, "a", true},
		{`a\`, `a\`, true},
		{`a\`, "a", false},
		{`*\*`, "ab*", true},
		{`*\*`, "ab", false},
		{"a\nb*", "a\nb\x00", true},
		{"[ab]", "a", false},
		{"[ab]", "[ab]", true},
	}
	for _, tt := range tests {
		if got := limit.Glob(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Glob(%q, %q) = %t", tt.pattern, tt.s, got)
		}
	}
}

// TestGlobIsNotExponential would not end with a matcher that tries every split.
func TestGlobIsNotExponential(t *testing.T) {
	if limit.Glob(strings.Repeat("*a", 1000)+"b", strings.Repeat("a", 10_000)) {
		t.Error("matched without a b")
	}
}

// matches is Glob by its definition: it tries every split.
func matches(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return matches(pattern[1:], s) || s != "" && matches(pattern, s[1:])
	case s == "":
		return false
	case pattern[0] == '?':
		return matches(pattern[1:], s[1:])
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == s[0] && matches(pattern[2:], s[1:])
	default:
		return pattern[0] == s[0] && matches(pattern[1:], s[1:])
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*b?c", "aXbbYc")
	f.Add(`*\**`, "a*b")
	f.Add("*a*a*", "aaab")
	f.Add(`\`, `\`)
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 16 || len(s) > 16 {
			return // matches would take too long
		}
		if got, want := limit.Glob(pattern, s), matches(pattern, s); got != want {
			t.Errorf("Glob(%q, %q) = %t, want %t", pattern, s, got, want)
		}
	})
}

// TestGlobOverASmallAlphabet tries every pattern and every text of up to five bytes.
func TestGlobOverASmallAlphabet(t *testing.T) {
	patterns, texts := []string{""}, []string{""}
	for i := 0; len(patterns[i]) < 5; i++ {
		for _, c := range []string{"a", "b", "*", "?", `\`} {
			patterns = append(patterns, patterns[i]+c)
		}
	}
	for i := 0; len(texts[i]) < 4; i++ {
		for _, c := range []string{"a", "b", "*", `\`} {
			texts = append(texts, texts[i]+c)
		}
	}
	if testing.Short() {
		patterns = patterns[:len(patterns)/5]
	}
	for _, pattern := range patterns {
		for _, s := range texts {
			if got, want := limit.Glob(pattern, s), matches(pattern, s); got != want {
				t.Fatalf("Glob(%q, %q) = %t, want %t", pattern, s, got, want)
			}
		}
	}
}
