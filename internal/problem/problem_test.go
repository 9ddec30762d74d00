package problem_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/problem"
)

func TestWrite(t *testing.T) {
	long := strings.Repeat("ä", 150)
	tests := []struct {
		p    problem.Problem
		want string
	}{
		{problem.Invalid(&limit.InvalidError{Field: "cost", Reason: "must not be negative"}),
			`{"type":"about:blank","title":"Bad Request","status":400,"code":"invalid-request","detail":"cost: must not be negative","field":"cost"}`},
		{problem.Invalid(&limit.InvalidError{Reason: `no "object"`}),
			`{"type":"about:blank","title":"Bad Request","status":400,"code":"invalid-request","detail":"no \"object\""}`},
		{problem.Invalid(&limit.InvalidError{Field: long, Reason: "unknown"}),
			`{"type":"about:blank","title":"Bad Request","status":400,"code":"invalid-request","detail":"` + long[:200] + `…: unknown","field":"` + long[:200] + `…"}`},
		{problem.BodyTooLarge(),
			`{"type":"about:blank","title":"Request Entity Too Large","status":413,"code":"body-too-large","detail":"a body may have 65536 bytes"}`},
		{problem.Internal(),
			`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal","detail":"an error inside the sidecar; its log has the cause"}`},
		{problem.Away("wait"),
			`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service Unavailable","status":503,` +
				`"code":"temporary-reduced-capacity","detail":"wait","degraded":true}`},
	}
	for _, tt := range tests {
		var w jx.Writer
		if tt.p.Write(&w); string(w.Buf) != tt.want || !json.Valid(w.Buf) {
			t.Errorf("got  %s\nwant %s", w.Buf, tt.want)
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		strings.Repeat("a", 200):        strings.Repeat("a", 200),
		strings.Repeat("a", 201):        strings.Repeat("a", 200) + "…",
		strings.Repeat("a", 199) + "äb": strings.Repeat("a", 199) + "…", // not through a character
	} {
		if got := problem.Cut(text); got != want {
			t.Errorf("Cut(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestHalfSurrogate(t *testing.T) {
	for text, want := range map[string]bool{
		``:                     false,
		`"ab\n\\"`:             false,
		`"\ud83d\ude00"`:       false,
		`"\uD83D\uDE00\u00e4"`: false,
		`"\\ud83d"`:            false, // an escaped backslash, then letters
		`"\ud7ff\ue000"`:       false, // the neighbours
		`"\ud83"`:              false, // no escape at all: the decoder refuses it
		`"\u_d83"`:             false,
		`"\u+d83"`:             false,
		`\`:                    false,
		`"\ud83d"`:             true,
		`"\ude00"`:             true,
		`"\udfff"`:             true,
		`"\ud800"`:             true,
		`"\ude00\ud83d"`:       true, // the wrong way round
		`"\ud83d\ud83d\ude00"`: true,
		`"\ud83d\ud83d"`:       true, // two first halves
		`"\ud83dx\ude00"`:      true,
		`"\\\ud83d"`:           true,
		`"\ud83d\\ude00"`:      true,
	} {
		if got := problem.HalfSurrogate([]byte(text)); got != want {
			t.Errorf("HalfSurrogate(%s) = %t, want %t", text, got, want)
		}
	}
}
