package httpapi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-faster/jx"
	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
)

// exchange is the memory of one request.
type exchange struct {
	parser    parser
	queries   []limit.Query
	decisions []limit.Decision
	answer    []byte
	header    []byte
}

// release forgets the client's data and keeps the memory for the next request.
func (s *Server) release(x *exchange) {
	for i := range x.queries {
		q := &x.queries[i]
		clear(q.Attributes)
		clear(q.Costs)
		q.Reset()
	}
	for i := range x.decisions {
		x.decisions[i].Reset()
	}
	s.exchanges.Put(x)
}

// grow makes room for n queries and their decisions.
func (x *exchange) grow(n int) {
	x.queries = slices.Grow(x.queries[:0], n)[:n]
	x.decisions = slices.Grow(x.decisions[:0], n)[:n]
}

// check answers POST /v1/check.
func (s *Server) check(l lives, arrival time.Time, rc *fasthttp.RequestCtx) {
	x := s.exchanges.Get().(*exchange)
	switch err := x.parser.parse(rc.PostBody(), formCheck); {
	case err != nil:
		s.fail(rc, err)
	case x.parser.batch:
		s.checkMany(l.requests, arrival, rc, x)
	default:
		s.checkOne(l, arrival, rc, x)
	}
	s.release(x)
}

// checkOne answers the single question of x.
func (s *Server) checkOne(l lives, arrival time.Time, rc *fasthttp.RequestCtx, x *exchange) {
	x.grow(1)
	x.parser.single.fill(x.parser.text(), &x.queries[0])
	if x.queries[0].MaxWait > 0 {
		s.hold(l.waits, arrival, rc, x)
	} else {
		s.cfg.Limiter.Decide(l.requests, arrival, x.queries, x.decisions)
	}
	d := &x.decisions[0]
	if d.Err != nil {
		s.fail(rc, d.Err)
		return
	}
	x.answer = appendDecision(x.answer, d, false)
	s.answer(rc, x, d)
	if !d.Allowed {
		rc.SetStatusCode(fasthttp.StatusTooManyRequests)
		x.header = setDenialHeaders(&rc.Response.Header, x.header, d)
	}
}

// hold asks the single question of x, whose answer may be held back: it ends when the client hangs
// up, or when waits does.
func (s *Server) hold(waits context.Context, arrival time.Time, rc *fasthttp.RequestCtx, x *exchange) {
	ctx, done := watch(waits, rc.Conn())
	defer done()
	s.cfg.Limiter.Decide(ctx, arrival, x.queries, x.decisions)
	d := &x.decisions[0]
	var failure *limit.StoreError
	if ctx.Err() != nil && errors.As(d.Err, &failure) && failure.Failure == limit.FailureCanceled {
		d.Err = context.Cause(ctx)
		rc.SetConnectionClose()
	}
}

// answer sets a decision's headers, and the body that was written, with status 200.
func (s *Server) answer(rc *fasthttp.RequestCtx, x *exchange, d *limit.Decision) {
	x.header = s.setDecisionHeaders(&rc.Response.Header, x.header, d)
	x.giveBody(rc)
}

// giveBody makes what was written the body of the response, without a copy: the two swap their memory.
func (x *exchange) giveBody(rc *fasthttp.RequestCtx) {
	x.answer = rc.Response.SwapBody(x.answer)[:0]
}

// checkMany answers the questions of x, those that could be read, in one call of the limiter.
func (s *Server) checkMany(ctx context.Context, arrival time.Time, rc *fasthttp.RequestCtx, x *exchange) {
	checks, arena := x.parser.checks, x.parser.text()
	x.grow(len(checks))
	asked := 0
	for i := range checks {
		if checks[i].err == nil {
			checks[i].fill(arena, &x.queries[asked])
			asked++
		}
	}
	decisions := x.decisions[:asked]
	s.cfg.Limiter.Decide(ctx, arrival, x.queries[:asked], decisions)
	degraded := false
	x.answer = append(x.answer, `{"decisions":[`...)
	for i := range checks {
		if i > 0 {
			x.answer = append(x.answer, ',')
		}
		err := checks[i].err
		if err == nil {
			d := &decisions[0]
			decisions = decisions[1:]
			degraded = degraded || d.Degraded
			if err = d.Err; err == nil {
				x.answer = appendDecision(x.answer, d, false)
				continue
			}
		}
		p, w := s.report(err), jx.Writer{Buf: x.answer}
		p.Write(&w)
		x.answer = w.Buf
	}
	x.answer = append(x.answer, `]}`...)
	rc.SetContentTypeBytes(valueJSON)
	rc.Response.Header.SetCanonical(headerCacheControl, valueNoStore)
	if degraded {
		rc.Response.Header.SetCanonical(headerDegraded, valueTrue)
	}
	x.giveBody(rc)
}
