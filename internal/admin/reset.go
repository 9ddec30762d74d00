package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"unicode/utf8"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
)

// The bounds of /v1/reset, which are those of the data plane.
const (
	maxResetBody  = 64 << 10 // bytes
	maxAttributes = 64
)

// serveReset forgets one key of one limit: 204.
func (s *Server) serveReset(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxResetBody))
	if err != nil {
		writeProblem(w, bodyProblem(err))
		return
	}
	name, attributes, err := parseReset(body)
	if err == nil {
		err = s.cfg.Limits.Forget(r.Context(), name, attributes)
	}
	if err != nil {
		s.refuseReset(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func bodyProblem(err error) problem {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return problem{Status: http.StatusRequestEntityTooLarge, Code: "body-too-large", Detail: "a body may have 65536 bytes"}
	}
	return problem{Status: http.StatusBadRequest, Code: "invalid-request", Detail: "the body did not arrive to its end"}
}

// refuseReset is the one place that turns an error of a reset into a status: the client gets a
// fixed text, the log the cause when it is the store's.
func (s *Server) refuseReset(w http.ResponseWriter, r *http.Request, err error) {
	var invalid *limit.InvalidError
	switch {
	case errors.As(err, &invalid):
		writeProblem(w, invalidProblem(invalid))
	case errors.Is(err, limit.ErrUnknownPolicy):
		writeProblem(w, problem{Status: http.StatusNotFound, Code: "unknown-limit", Detail: "there is no limit of this name", Field: "limit"})
	case r.Context().Err() != nil: // the client is gone: nobody reads an answer, and nothing is wrong
	case errors.Is(err, limit.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.cfg.Logger.Warn("admin: reset: the store did not answer", "cause", err.Error())
		w.Header().Set("Retry-After", "1")
		writeProblem(w, problem{
			Type:   temporaryReducedCapacity,
			Status: http.StatusServiceUnavailable,
			Code:   "temporary-reduced-capacity",
			Detail: "the store did not answer in time; the key may or may not be forgotten, and asking again is safe",
		})
	default:
		s.cfg.Logger.Error("admin: reset failed", "cause", err.Error())
		writeProblem(w, problem{Status: http.StatusInternalServerError, Code: "internal",
			Detail: "an error inside the sidecar; its log has the cause"})
	}
}

// parseReset reads {"limit": name, "attributes": {name: value}}. Every error is a
// limit.InvalidError. Text that a decoder would replace by other text is refused, as the data
// plane does, so that the key that is forgotten is never another than the one that was meant.
func parseReset(body []byte) (name string, attributes limit.Attributes, err error) {
	switch {
	case !utf8.Valid(body):
		return "", nil, invalid("", "the body is not valid UTF-8")
	case jx.DecodeBytes(body).Validate() != nil, jx.DecodeBytes(body).Next() != jx.Object:
		return "", nil, errNotObject()
	case halfSurrogate(body):
		return "", nil, invalid("", `a string holds half of a surrogate pair: \ud800 to \udfff are valid in pairs only`)
	}
	seen := map[string]bool{}
	err = jx.DecodeBytes(body).Obj(func(d *jx.Decoder, field string) (err error) {
		if seen[field] {
			return invalid(field, "given twice")
		}
		seen[field] = true
		switch field {
		case "limit":
			name, err = parseString(d, field)
		case "attributes":
			attributes, err = parseAttributes(d)
		default:
			err = invalid(field, "unknown field; a reset has limit and attributes")
		}
		return err
	})
	if err != nil {
		return "", nil, asInvalid(err)
	}
	if name == "" {
		return "", nil, invalid("limit", "missing or empty; name the limit")
	}
	return name, attributes, nil
}

func parseAttributes(d *jx.Decoder) (limit.Attributes, error) {
	if d.Next() != jx.Object {
		return nil, invalid("attributes", "must be an object of strings")
	}
	var attributes limit.Attributes
	err := d.Obj(func(d *jx.Decoder, name string) error {
		if len(attributes) == maxAttributes {
			return invalid("attributes", "there may be 64 at most")
		}
		if _, ok := attributes.Get(name); ok {
			return invalid("attributes."+name, "given twice")
		}
		value, err := parseString(d, "attributes."+name)
		attributes = append(attributes, limit.Attribute{Name: name, Value: value})
		return err
	})
	return attributes, err
}

func parseString(d *jx.Decoder, field string) (string, error) {
	if d.Next() != jx.String {
		return "", invalid(field, "must be a string")
	}
	return d.Str()
}

// halfSurrogate reports whether JSON text escapes a surrogate without its other half.
func halfSurrogate(text []byte) bool {
	const (
		high = `u[dD][89abAB][0-9a-fA-F]{2}`
		low  = `u[dD][c-fC-F][0-9a-fA-F]{2}`
	)
	escape := regexp.MustCompile(`\\(?:` + high + `\\` + low + `|(` + high + `|` + low + `)|.)`)
	for _, found := range escape.FindAllSubmatchIndex(text, -1) {
		if found[2] >= 0 {
			return true
		}
	}
	return false
}

func invalid(field, reason string) error {
	return &limit.InvalidError{Field: field, Reason: reason}
}

func errNotObject() error { return invalid("", "the body is not one JSON object") }

// asInvalid takes the decoder's wrapping, which may quote the body, off an error.
func asInvalid(err error) error {
	var bad *limit.InvalidError
	if errors.As(err, &bad) {
		return bad
	}
	return errNotObject()
}
