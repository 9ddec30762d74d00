package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/go-faster/jx"
	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
)

// finish answers POST /v1/finish.
func (s *Server) finish(ctx context.Context, arrival time.Time, rc *fasthttp.RequestCtx) {
	x := s.exchanges.Get().(*exchange)
	settlement, err := x.settlement(rc.PostBody(), formFinish)
	if err == nil {
		var settled limit.Settled
		if settled, err = s.cfg.Limiter.Finish(ctx, arrival, &settlement); err == nil {
			writeSettled(&x.answer, &settled)
		}
	}
	s.answerSettlement(rc, x, err)
	s.release(x)
}

// renew answers POST /v1/renew.
func (s *Server) renew(ctx context.Context, arrival time.Time, rc *fasthttp.RequestCtx) {
	x := s.exchanges.Get().(*exchange)
	settlement, err := x.settlement(rc.PostBody(), formRenew)
	if err == nil {
		var ticket string
		if ticket, err = s.cfg.Limiter.Renew(ctx, arrival, settlement.Ticket); err == nil {
			x.answer.RawStr(`{"ticket":`)
			x.answer.Str(ticket)
			x.answer.ObjEnd()
		}
	}
	s.answerSettlement(rc, x, err)
	s.release(x)
}

// settlement reads what a body says of a ticket. The costs are in the memory of x.
func (x *exchange) settlement(body []byte, f form) (limiter.Settlement, error) {
	if err := x.parser.parse(body, f); err != nil {
		return limiter.Settlement{}, err
	}
	x.grow(1)
	arena, q := string(x.parser.arena), &x.queries[0]
	x.parser.single.fill(arena, q)
	sealed := x.parser.single.sealed
	return limiter.Settlement{
		Ticket: arena[sealed.from:sealed.to],
		Costs:  q.Costs, Amount: q.Amount, HasAmount: q.HasAmount,
	}, nil
}

// answerSettlement answers with what was written, or with the problem that err is.
func (s *Server) answerSettlement(rc *fasthttp.RequestCtx, x *exchange, err error) {
	if err != nil {
		s.fail(rc, fmt.Errorf("%w: %w", errSettle, err))
		return
	}
	rc.SetContentTypeBytes(valueJSON)
	rc.Response.Header.SetCanonical(headerCacheControl, valueNoStore)
	rc.SetBody(x.answer.Buf)
}

// writeSettled writes whether the ticket is settled by this very request, and what is left of its
// limits.
func writeSettled(w *jx.Writer, settled *limit.Settled) {
	w.RawStr(`{"settled":`)
	w.Bool(settled.Done)
	w.RawStr(`,"limits":[`)
	for i := range settled.Verdicts {
		if i > 0 {
			w.Comma()
		}
		v := &settled.Verdicts[i]
		w.RawStr(`{"name":`)
		w.Str(v.Limit.Name)
		w.RawStr(`,"limit":`)
		w.Int64(v.Settings.Capacity())
		writeRemaining(w, v.Remaining)
		w.RawStr(`,"reset_after_ms":`)
		w.Int64(ceil(v.ResetAfter, time.Millisecond))
		if v.Limit.Shadow {
			w.RawStr(`,"shadow":true`)
		}
		w.ObjEnd()
	}
	w.RawStr(`]}`)
}
