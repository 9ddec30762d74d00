package httpapi

import (
	"context"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
)

// Serve answers one request without a network.
func (s *Server) Serve(ctx context.Context, rc *fasthttp.RequestCtx) { s.serve(ctx, rc) }

// ParseCheck reads the body of a check: the queries, of which queries[i] is only valid where
// errs[i] is nil, and what is wrong with the body as a whole.
func ParseCheck(body []byte) (queries []limit.Query, errs []error, batch bool, err error) {
	var p parser
	if err := p.parse(body); err != nil {
		return nil, nil, false, err
	}
	questions := p.checks
	if !p.batch {
		questions = []question{p.single}
	}
	for i := range questions {
		var q limit.Query
		if questions[i].err == nil {
			questions[i].fill(string(p.arena), &q)
		}
		queries, errs = append(queries, q), append(errs, questions[i].err)
	}
	return queries, errs, p.batch, nil
}

// WrapListener returns the listener that a Server puts around l.
func WrapListener(l net.Listener) net.Listener { return newListener(l, new(conns)) }
