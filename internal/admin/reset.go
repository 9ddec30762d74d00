package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/problem"
)

// serveReset forgets one key of one limit: 204.
func (s *Server) serveReset(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, problem.MaxBody))
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

func bodyProblem(err error) problem.Problem {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return problem.BodyTooLarge()
	}
	return problem.Problem{Status: http.StatusBadRequest, Code: "invalid-request", Detail: "the body did not arrive to its end"}
}

// refuseReset is the one place that turns an error of a reset into a status: the client gets a
// fixed text, the log the cause when it is the store's.
func (s *Server) refuseReset(w http.ResponseWriter, r *http.Request, err error) {
	var invalid *limit.InvalidError
	switch {
	case errors.As(err, &invalid):
		writeProblem(w, problem.Invalid(invalid))
	case errors.Is(err, limit.ErrUnknownPolicy):
		writeProblem(w, problem.Problem{Status: http.StatusNotFound, Code: "unknown-policy", Detail: "there is no limit of this name", Field: "limit"})
	case r.Context().Err() != nil: // the client is gone: nobody reads an answer, and nothing is wrong
	case errors.Is(err, limit.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.cfg.Logger.Warn("admin: reset: the store did not answer", "error", err.Error())
		writeProblem(w, problem.Away("Redis cannot be reached or did not answer in time; the key may or may not be forgotten, and asking again is safe"))
	default:
		s.cfg.Logger.Error("admin: reset failed", "error", err.Error())
		writeProblem(w, problem.Internal())
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
	case problem.HalfSurrogate(body):
		return "", nil, invalid("", problem.HalfSurrogateReason)
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
		if len(attributes) == problem.MaxNamed {
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
