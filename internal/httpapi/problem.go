package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-faster/jx"
	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
)

// The errors of a request that never became a question.
var (
	errNotFound     = errors.New("httpapi: no such path")
	errMethod       = errors.New("httpapi: method not allowed")
	errBodyTooLarge = errors.New("httpapi: body too large")
	errHeader       = errors.New("httpapi: header too large")
	errReadTimeout  = errors.New("httpapi: request did not arrive in time")
	errMalformed    = errors.New("httpapi: request is not HTTP")
	errPanic        = errors.New("httpapi: panic")
)

const (
	typeNone     = "about:blank" // nothing but the status
	typeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	maxQuoted = 200 // bytes of a field's name or of a detail's text
)

// problem is an error as a client sees it (RFC 9457).
type problem struct {
	status int
	code   string // stable, for programs
	kind   string // the problem type; empty: typeNone
	detail string // for people; never with a value of an attribute
	field  string // what is at fault, if a single field is
}

// problemOf is the one place that turns an error into a status.
func problemOf(err error) problem {
	var bad *limit.InvalidError
	switch {
	case errors.As(err, &bad):
		return invalidProblem(bad)
	case errors.Is(err, limit.ErrUnknownPolicy):
		return problem{status: 404, code: "unknown-policy", detail: cut(strings.TrimPrefix(err.Error(), "limit: "))}
	case errors.Is(err, limit.ErrUnavailable):
		return problem{status: 503, code: "temporary-reduced-capacity", kind: typeCapacity, detail: "the store of the limits did not answer in time"}
	case errors.Is(err, limit.ErrWrongType):
		return problem{status: 503, code: "wrong-type", detail: "a key of this limit holds something else in the store; it was left alone"}
	case errors.Is(err, errNotFound):
		return problem{status: 404, code: "not-found", detail: "there is nothing at this path; try POST /v1/check"}
	case errors.Is(err, errMethod):
		return problem{status: 405, code: "method-not-allowed", detail: "this path does not take the method; Allow names those it takes"}
	case errors.Is(err, errBodyTooLarge):
		return problem{status: 413, code: "body-too-large", detail: "a body may have 65536 bytes"}
	case errors.Is(err, errHeader):
		return problem{status: 431, code: "header-too-large", detail: "the request line and the headers may have 16384 bytes together"}
	case errors.Is(err, errReadTimeout):
		return problem{status: 408, code: "request-timeout", detail: "the request did not arrive in time"}
	case errors.Is(err, errMalformed):
		return problem{status: 400, code: "invalid-request", detail: "the request is not valid HTTP"}
	default:
		return problem{status: 500, code: "internal", detail: "an error inside the sidecar; its log has the cause"}
	}
}

func invalidProblem(bad *limit.InvalidError) problem {
	detail := bad.Reason
	if bad.Field != "" {
		detail = cut(bad.Field) + ": " + bad.Reason
	}
	return problem{status: 400, code: "invalid-request", detail: detail, field: bad.Field}
}

// cut shortens a text that a client may have made long, at the end of a character.
func cut(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	n := maxQuoted
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func (p *problem) write(w *jx.Writer) {
	w.RawStr(`{"type":`)
	w.Str(cmp.Or(p.kind, typeNone))
	w.RawStr(`,"title":`)
	w.Str(fasthttp.StatusMessage(p.status))
	w.RawStr(`,"status":`)
	w.Int(p.status)
	w.RawStr(`,"code":`)
	w.Str(p.code)
	w.RawStr(`,"detail":`)
	w.Str(p.detail)
	if p.field != "" {
		w.RawStr(`,"field":`)
		w.Str(cut(p.field))
	}
	if p.kind == typeCapacity {
		w.RawStr(`,"degraded":true`)
	}
	w.ObjEnd()
}

// fail answers with the problem that err is, and logs the cause of one that is not the client's.
func (s *Server) fail(rc *fasthttp.RequestCtx, err error) {
	p := s.report(err)
	var w jx.Writer
	p.write(&w)
	rc.SetStatusCode(p.status)
	rc.SetContentTypeBytes(valueProblem)
	rc.Response.Header.SetCanonical(headerCacheControl, valueNoStore)
	if p.kind == typeCapacity {
		rc.Response.Header.SetCanonical(headerRetry, []byte("1"))
		rc.Response.Header.SetCanonical(headerDegraded, valueTrue)
	}
	rc.SetBody(w.Buf)
}

// report returns the problem that err is, and logs the cause of one that is not the client's.
func (s *Server) report(err error) problem {
	p := problemOf(err)
	if c := s.causes[p.code]; c != nil {
		c.log(err)
	}
	return p
}

func (s *Server) refuseMethod(rc *fasthttp.RequestCtx, allow string) {
	rc.Response.Header.SetCanonical(headerAllow, []byte(allow))
	s.fail(rc, errMethod)
}

// refuse answers a request that fasthttp could not read. The connection is closed after it.
func (s *Server) refuse(rc *fasthttp.RequestCtx, err error) {
	var header *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		s.fail(rc, errReadTimeout)
		return
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		s.fail(rc, errBodyTooLarge)
	case errors.As(err, &header):
		s.fail(rc, errHeader)
	default:
		s.fail(rc, errMalformed)
	}
	lingerOnClose(rc)
}

// causes keeps, for each code whose cause belongs into the log, what was logged of it.
type causes map[string]*cause

// cause logs one kind of failure, at most once in a second: a store that is away fails every
// request. Safe for concurrent use.
type cause struct {
	logger  *slog.Logger
	level   slog.Level
	next    atomic.Int64 // when the next line may be written, in ns since 1970
	skipped atomic.Int64 // failures since the last line
}

func newCauses(logger *slog.Logger) causes {
	return causes{
		"temporary-reduced-capacity": {logger: logger, level: slog.LevelWarn},
		"wrong-type":                 {logger: logger, level: slog.LevelWarn},
		"internal":                   {logger: logger, level: slog.LevelError},
	}
}

func (c *cause) log(err error) {
	now, next := time.Now().UnixNano(), c.next.Load()
	if now < next || !c.next.CompareAndSwap(next, now+int64(time.Second)) {
		c.skipped.Add(1)
		return
	}
	c.logger.Log(context.Background(), c.level, "request failed", "cause", err.Error(), "not_logged", c.skipped.Swap(0))
}
