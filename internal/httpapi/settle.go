package httpapi

import (
	"context"
	"fmt"
	"time"

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
			x.answer = appendSettled(x.answer, &settled)
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
			x.answer = append(appendText(x.answer, `{"ticket":`, ticket), '}')
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
	arena, q := x.parser.text(), &x.queries[0]
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
	x.giveBody(rc)
}

// appendSettled appends whether the ticket is settled by this very request, and what is left of its
// limits.
func appendSettled(b []byte, settled *limit.Settled) []byte {
	b = appendBool(b, `{"settled":`, settled.Done)
	b = append(b, `,"limits":[`...)
	for i := range settled.Verdicts {
		v := &settled.Verdicts[i]
		b = appendText(b, `{"name":`, v.Limit.Name)
		b = appendInt(b, `,"limit":`, v.Settings.Capacity())
		b = appendRemaining(b, v.Remaining)
		b = appendInt(b, `,"reset_after_ms":`, ceil(v.ResetAfter, time.Millisecond))
		if v.Limit.Shadow {
			b = append(b, `,"shadow":true`...)
		}
		b = append(b, "},"...)
	}
	return append(withoutComma(b), `]}`...)
}
