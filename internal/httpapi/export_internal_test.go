package httpapi

import (
	"context"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
)

// Serve answers one request without a network.
func (s *Server) Serve(ctx context.Context, rc *fasthttp.RequestCtx) {
	s.serve(lives{requests: ctx, waits: ctx}, rc)
}

// ParseCheck reads the body of a check: the queries, of which queries[i] is only valid where
// errs[i] is nil, and what is wrong with the body as a whole.
func ParseCheck(body []byte) (queries []limit.Query, errs []error, batch bool, err error) {
	var p parser
	if err := p.parse(body, formCheck); err != nil {
		return nil, nil, false, err
	}
	questions := p.checks
	if !p.batch {
		questions = []question{p.single}
	}
	for i := range questions {
		var q limit.Query
		if questions[i].err == nil {
			questions[i].fill(p.text(), &q)
		}
		queries, errs = append(queries, q), append(errs, questions[i].err)
	}
	return queries, errs, p.batch, nil
}

// ParseSettlement reads the body of a call of the given path: the ticket, and the query with its costs.
func ParseSettlement(path string, body []byte) (ticket string, q limit.Query, err error) {
	f := formFinish
	if path == "/v1/renew" {
		f = formRenew
	}
	var x exchange
	settlement, err := x.settlement(body, f)
	q = limit.Query{Costs: settlement.Costs, Amount: settlement.Amount, HasAmount: settlement.HasAmount}
	return settlement.Ticket, q, err
}

// WrapListener returns the listener that a Server puts around l.
func WrapListener(l net.Listener) net.Listener { return newListener(l, new(conns)) }
