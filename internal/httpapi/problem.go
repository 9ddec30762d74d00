package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-faster/jx"
	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/problem"
)

// The errors of a request that never became a question, or whose answer nobody waits for.
var (
	errNotFound     = errors.New("httpapi: no such path")
	errMethod       = errors.New("httpapi: method not allowed")
	errBodyTooLarge = errors.New("httpapi: body too large")
	errHeader       = errors.New("httpapi: header too large")
	errReadTimeout  = errors.New("httpapi: request did not arrive in time")
	errMalformed    = errors.New("httpapi: request is not HTTP")
	errPanic        = errors.New("httpapi: panic")
	errHungUp       = errors.New("httpapi: the client hung up while it waited")
	errStopping     = errors.New("httpapi: the server stops")

	// errSettle stands around the error of a settlement, which may be asked for again in any case.
	errSettle = errors.New("httpapi: settle")
)

// problemOf is the one place that turns an error into a status.
func problemOf(err error) problem.Problem {
	var bad *limit.InvalidError
	switch {
	case errors.As(err, &bad):
		return problem.Invalid(bad)
	case errors.Is(err, limit.ErrUnknownPolicy):
		return problem.Problem{Status: 404, Code: "unknown-policy", Detail: problem.Cut(strings.TrimPrefix(err.Error(), "limit: "))}
	case errors.Is(err, limit.ErrForged):
		return problem.Problem{Status: 400, Code: "invalid-ticket", Field: "ticket", Detail: "ticket: this is no ticket of these sidecars, or it was damaged; send it back as it was given"}
	case errors.Is(err, limit.ErrExpired):
		return problem.Problem{Status: 410, Code: "ticket-expired", Detail: "the ticket or its slot has expired, it was finished before, or the memory in which it was charged is gone; there is nothing left to do with it"}
	case errors.Is(err, errSettle) && errors.Is(err, limit.ErrUnavailable):
		return problem.Away("Redis cannot be reached or did not answer in time; it may or may not have been done, and asking again is safe")
	case errors.Is(err, limit.ErrUnavailable):
		return problem.Away("Redis cannot be reached or did not answer in time, and a limit of this question fails closed")
	case errors.Is(err, limit.ErrWrongType):
		return problem.Problem{Status: 503, Code: "wrong-type", Detail: "a key of this limit holds something else in the store; it was left alone"}
	case errors.Is(err, errStopping):
		return problem.Stopping("the sidecar stops, so that the answer is held back no longer; ask again in a moment")
	case errors.Is(err, errHungUp):
		return problem.Problem{Status: 400, Code: "hung-up", Detail: "the client closed the connection, or its own side of it, before the answer was due; keep it open"}
	case errors.Is(err, errNotFound):
		return problem.Problem{Status: 404, Code: "not-found", Detail: "there is nothing at this path; try POST /v1/check"}
	case errors.Is(err, errMethod):
		return problem.Problem{Status: 405, Code: "method-not-allowed", Detail: "this path does not take the method; Allow names those it takes"}
	case errors.Is(err, errBodyTooLarge):
		return problem.BodyTooLarge()
	case errors.Is(err, errHeader):
		return problem.Problem{Status: 431, Code: "header-too-large", Detail: "the request line and the headers may have 16384 bytes together"}
	case errors.Is(err, errReadTimeout):
		return problem.Problem{Status: 408, Code: "request-timeout", Detail: "the request did not arrive in time"}
	case errors.Is(err, errMalformed):
		return problem.Problem{Status: 400, Code: "invalid-request", Detail: "the request is not valid HTTP"}
	default:
		return problem.Internal()
	}
}

// fail answers with the problem that err is, and logs the cause of one that is not the client's.
func (s *Server) fail(rc *fasthttp.RequestCtx, err error) {
	p := s.report(err)
	var w jx.Writer
	p.Write(&w)
	rc.SetStatusCode(p.Status)
	rc.SetContentTypeBytes(valueProblem)
	rc.Response.Header.SetCanonical(headerCacheControl, valueNoStore)
	if p.Passes() {
		rc.Response.Header.SetCanonical(headerRetry, []byte("1"))
	}
	if p.Degraded() {
		rc.Response.Header.SetCanonical(headerDegraded, valueTrue)
	}
	rc.SetBody(w.Buf)
}

// report returns the problem that err is, and logs the cause of one that is not the client's.
func (s *Server) report(err error) problem.Problem {
	p := problemOf(err)
	if c := s.causes[p.Code]; c != nil {
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

// cause logs one kind of failure, at most once a minute: a store that is away fails every
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
	if now < next || !c.next.CompareAndSwap(next, now+int64(time.Minute)) {
		c.skipped.Add(1)
		return
	}
	c.logger.Log(context.Background(), c.level, "request failed", "error", err.Error(), "not_logged", c.skipped.Swap(0))
}
