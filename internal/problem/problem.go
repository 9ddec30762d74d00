// Package problem is how both HTTP planes refuse: the document of an error (RFC 9457), the bounds
// of a request, and the text that none of them takes. It keeps no state and starts nothing.
package problem

import (
	"bytes"
	"cmp"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
)

// The bounds of a request.
const (
	MaxBody  = 64 << 10 // bytes of a body
	MaxNamed = 64       // attributes of a question, and units of its cost
)

// ContentType is that of a problem document.
const ContentType = "application/problem+json"

// The types of problems.
const (
	TypeNone     = "about:blank"                                                                // nothing but the status
	TypeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" // it passes by itself
)

// HalfSurrogateReason is why text for which [HalfSurrogate] is true is refused.
const HalfSurrogateReason = `a string holds half of a surrogate pair: \ud800 to \udfff are valid in pairs only`

// maxQuoted is how many bytes of a client's text an answer repeats.
const maxQuoted = 200

// Problem is an error as a client sees it.
type Problem struct {
	Status int
	Code   string // stable, for programs
	Type   string // empty: TypeNone
	Detail string // for people; never with a value of an attribute
	Field  string // what is at fault, if a single field is, as it is named in the request
}

// Invalid is the problem of a question that cannot be answered as it is.
func Invalid(bad *limit.InvalidError) Problem {
	detail := bad.Reason
	if bad.Field != "" {
		detail = Cut(bad.Field) + ": " + bad.Reason
	}
	return Problem{Status: 400, Code: "invalid-request", Detail: detail, Field: bad.Field}
}

// BodyTooLarge is the problem of a body above MaxBody.
func BodyTooLarge() Problem {
	return Problem{Status: 413, Code: "body-too-large", Detail: "a body may have 65536 bytes"}
}

// Internal is the problem of a bug in the sidecar, whose cause is for the log alone.
func Internal() Problem {
	return Problem{Status: 500, Code: "internal", Detail: "an error inside the sidecar; its log has the cause"}
}

// Away is the problem of a store that did not answer, which passes by itself.
func Away(detail string) Problem {
	return Problem{Status: 503, Code: "temporary-reduced-capacity", Type: TypeCapacity, Detail: detail}
}

// Stopping is the problem of a process that is about to end, in whose place another one answers.
func Stopping(detail string) Problem {
	return Problem{Status: 503, Code: "shutting-down", Type: TypeCapacity, Detail: detail}
}

// Degraded reports whether the store is away. Such an answer has the header X-Tidegate-Degraded:
// true, and Passes.
func (p *Problem) Degraded() bool { return p.Code == "temporary-reduced-capacity" }

// Passes reports whether the problem passes by itself. Such an answer has the header Retry-After: 1.
func (p *Problem) Passes() bool { return p.Type == TypeCapacity }

// Write writes the document as JSON.
func (p *Problem) Write(w *jx.Writer) {
	w.RawStr(`{"type":`)
	w.Str(cmp.Or(p.Type, TypeNone))
	w.RawStr(`,"title":`)
	w.Str(http.StatusText(p.Status))
	w.RawStr(`,"status":`)
	w.Int(p.Status)
	w.RawStr(`,"code":`)
	w.Str(p.Code)
	w.RawStr(`,"detail":`)
	w.Str(p.Detail)
	if p.Field != "" {
		w.RawStr(`,"field":`)
		w.Str(Cut(p.Field))
	}
	if p.Degraded() {
		w.RawStr(`,"degraded":true`)
	}
	w.ObjEnd()
}

// Cut shortens a text that a client may have made long, at the end of a character.
func Cut(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	n := maxQuoted
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// HalfSurrogate reports whether a \u escape in JSON text is a surrogate without its other half,
// which decoders replace, so that different strings become the same.
func HalfSurrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 >= len(text) {
			return false
		}
		text = text[i:]
		switch unit, ok := escapedUnit(text); {
		case !ok:
			text = text[2:]
		case unit >= 0xdc00 && unit <= 0xdfff:
			return true
		case unit >= 0xd800 && unit <= 0xdbff:
			low, ok := escapedUnit(text[6:])
			if !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			text = text[12:]
		default:
			text = text[6:]
		}
	}
}

// escapedUnit reads the \uXXXX at the beginning of text.
func escapedUnit(text []byte) (unit uint64, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return unit, err == nil
}
