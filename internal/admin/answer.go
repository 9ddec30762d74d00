package admin

import (
	"encoding/json"
	"net/http"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/problem"
)

// writeProblem answers with a problem. One that the store is away has the headers of the data
// plane's.
func writeProblem(w http.ResponseWriter, p problem.Problem) {
	if p.Degraded() {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("X-Tidegate-Degraded", "true")
	}
	var document jx.Writer
	p.Write(&document)
	w.Header().Set("Content-Type", problem.ContentType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(document.Buf, '\n')) // a client that is gone has no use for an error
}

// writeJSON writes one JSON document and a line feed. A client that is gone by now has no use for
// an error.
func writeJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}
