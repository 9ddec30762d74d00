package httpapi

import (
	"bytes"
	"context"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/problem"
)

// status answers GET /v1/status: the decision that a request would get, charging nothing.
func (s *Server) status(ctx context.Context, arrival time.Time, rc *fasthttp.RequestCtx) {
	x := s.exchanges.Get().(*exchange)
	if err := x.parser.parseParameters(rc.URI().QueryString()); err != nil {
		s.fail(rc, err)
	} else {
		x.grow(1)
		x.parser.single.fill(x.parser.text(), &x.queries[0])
		x.queries[0].Peek = true
		s.cfg.Limiter.Decide(ctx, arrival, x.queries, x.decisions)
		if d := &x.decisions[0]; d.Err != nil {
			s.fail(rc, d.Err)
		} else {
			x.answer = appendDecision(x.answer, d, true)
			s.answer(rc, x, d)
		}
	}
	s.release(x)
}

// parseParameters reads the question of a query string: policy or limit, key, and attributes.
func (p *parser) parseParameters(query []byte) error {
	p.reset()
	for len(query) > 0 {
		var piece []byte
		piece, query, _ = bytes.Cut(query, []byte("&"))
		if len(piece) == 0 {
			continue
		}
		if err := p.parseParameter(piece); err != nil {
			return err
		}
	}
	return formElement.checkTogether(p.single.seen)
}

func (p *parser) parseParameter(piece []byte) error {
	rawName, rawValue, found := bytes.Cut(piece, []byte("="))
	name, ok := p.unescape(rawName)
	if !ok || name.from == name.to {
		return invalid("", "the query holds a name that is empty or not valid percent-encoded UTF-8")
	}
	label := string(p.arena[name.from:name.to])
	if !found {
		return invalid(label, "has no value; write "+problem.Cut(label)+"=VALUE")
	}
	value, ok := p.unescape(rawValue)
	if !ok {
		return invalid(label, "is not valid percent-encoded UTF-8")
	}
	q := &p.single
	switch label {
	case "policy":
		q.policy = value
		return q.see(fieldPolicy, label, value)
	case "limit":
		q.limit = value
		return q.see(fieldLimit, label, value)
	case "key":
		q.key = value
		return q.see(fieldKey, label, value)
	}
	if err := p.checkAttribute([]byte(label), q); err != nil {
		return err
	}
	q.attributes = append(q.attributes, attribute{name: name, value: value})
	return nil
}

// see notes a parameter that may stand once and needs a value.
func (q *question) see(f field, name string, value text) error {
	if q.seen&f != 0 {
		return invalid(name, "given twice")
	}
	if value.from == value.to {
		return invalid(name, "empty; it needs a value")
	}
	q.seen |= f
	return nil
}

// unescape decodes the percent-encoding of raw into the arena, + as a space. It is not ok when an
// escape is broken or the result is not UTF-8.
func (p *parser) unescape(raw []byte) (t text, ok bool) {
	t.from = len(p.arena)
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '+':
			p.arena = append(p.arena, ' ')
		case '%':
			if i+2 >= len(raw) {
				return t, false
			}
			high, low := hexDigit(raw[i+1]), hexDigit(raw[i+2])
			if high < 0 || low < 0 {
				return t, false
			}
			p.arena = append(p.arena, byte(high<<4|low))
			i += 2
		default:
			p.arena = append(p.arena, c)
		}
	}
	t.to = len(p.arena)
	return t, utf8.Valid(p.arena[t.from:t.to])
}

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
