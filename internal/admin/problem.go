package admin

import (
	"encoding/json"
	"net/http"

	"github.com/tidegate/tidegate/internal/limit"
)

// temporaryReducedCapacity is the registered type of the problem that passes by itself.
const temporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// maxQuoted is the longest name of a field, in bytes, that an answer repeats.
const maxQuoted = 200

// problem is an error as a client sees it (RFC 9457), with the members of the data plane's.
type problem struct {
	Type   string `json:"type"` // empty: about:blank, the status says it all
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`            // stable, for programs
	Detail string `json:"detail"`          // for people; never with a value of an attribute
	Field  string `json:"field,omitempty"` // the one at fault, as it is named in the request
}

func invalidProblem(bad *limit.InvalidError) problem {
	p := problem{Status: http.StatusBadRequest, Code: "invalid-request", Detail: bad.Reason, Field: bad.Field}
	if len(p.Field) > maxQuoted {
		p.Field = p.Field[:maxQuoted] + "…" // a character that this cuts is written as U+FFFD
	}
	if p.Field != "" {
		p.Detail = p.Field + ": " + p.Detail
	}
	return p
}

func writeProblem(w http.ResponseWriter, p problem) {
	if p.Type == "" {
		p.Type = "about:blank"
	}
	p.Title = http.StatusText(p.Status)
	writeJSON(w, p.Status, "application/problem+json", p)
}

// writeJSON writes one JSON document and a line feed. A client that is gone by now has no use for
// an error.
func writeJSON(w http.ResponseWriter, status int, contentType string, document any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}
