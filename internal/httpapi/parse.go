package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/problem"
)

const (
	maxChecks = 100  // questions that one request may hold
	textsSize = 4096 // bytes of strings that are allocated at once
)

// errSyntax says that the body is not JSON. It stays inside the parser.
var errSyntax = errors.New("httpapi: not JSON")

// text is a decoded string: a range of the parser's arena.
type text struct{ from, to int }

func (t text) length() int { return t.to - t.from }

type attribute struct{ name, value text }

type unitCost struct {
	unit   text
	amount int64
}

// question is one question, or one settlement, as it was read.
type question struct {
	err                error // what is wrong with this one of several; nothing else is valid then
	seen               field
	policy, limit, key text
	attributes         []attribute
	costs              []unitCost
	amount             int64 // the cost without a unit
	hasAmount          bool
	ticket             bool          // one is wanted
	sealed             text          // the ticket that is to be settled; of a finish or renewal
	requestID          text          // 1 to maxRequestID bytes, where it was given
	maxWait            time.Duration // 0: the answer is not held back
}

func (q *question) reset() {
	*q = question{attributes: q.attributes[:0], costs: q.costs[:0]}
}

// parser reads questions and settlements. All strings of a request are decoded into one arena, which becomes
// a piece of one Go string of many requests: what a query holds outlives the request's body for much less than
// an allocation. The zero parser is ready; it is not safe for concurrent use.
type parser struct {
	body    jx.Decoder
	element jx.Decoder
	arena   []byte
	texts   strings.Builder // the arenas of the last requests
	single  question
	checks  []question // in place of single, when batch
	batch   bool
	broken  bool // the body has half of a surrogate pair somewhere
}

func (p *parser) reset() {
	p.arena, p.checks, p.batch, p.broken = p.arena[:0], p.checks[:0], false, false
	p.single.reset()
}

// parse reads a body of the given form. The error is an InvalidError about the request as a whole,
// or limit.ErrForged.
func (p *parser) parse(body []byte, f form) error {
	p.reset()
	if len(body) == 0 {
		return invalid("", "the body is empty; write a JSON object such as "+f.example())
	}
	if !utf8.Valid(body) {
		return invalid("", "the body is not valid UTF-8")
	}
	p.broken = problem.HalfSurrogate(body)
	p.body.ResetBytes(body)
	err := p.parseBody(f)
	switch {
	case err == errSyntax:
		return syntaxError(body)
	case err == nil && p.broken && !p.batch:
		return errHalfSurrogate()
	default:
		return err
	}
}

func (p *parser) parseBody(f form) error {
	switch p.body.Next() {
	case jx.Object:
	case jx.Invalid:
		return errSyntax
	default:
		return invalid("", "the body must be a JSON object")
	}
	if err := p.parseObject(&p.body, &p.single, f); err != nil {
		return err
	}
	if p.body.Skip() != io.EOF {
		return errSyntax
	}
	return nil
}

// parseObject reads one object of the given form from d, which stands before it.
func (p *parser) parseObject(d *jx.Decoder, q *question, in form) error {
	members, err := d.ObjIter()
	if err != nil {
		return errSyntax
	}
	for members.Next() {
		name := members.Key()
		f := fieldOf(name)
		if f&in.fields() == 0 {
			return in.unknown(string(name))
		}
		if q.seen&f != 0 {
			return invalid(string(name), "given twice")
		}
		q.seen |= f
		if err := p.parseField(d, in, f, q); err != nil {
			return err
		}
	}
	if members.Err() != nil {
		return errSyntax
	}
	return in.checkTogether(q.seen)
}

// parseChecks reads several questions. What is wrong with one of them stands in its err.
func (p *parser) parseChecks(d *jx.Decoder) error {
	if d.Next() != jx.Array {
		return invalid("checks", "must be an array of questions")
	}
	p.batch = true
	elements, err := d.ArrIter()
	if err != nil {
		return errSyntax
	}
	for elements.Next() {
		if len(p.checks) == maxChecks {
			return invalid("checks", "holds more than 100 questions; ask the others in another request")
		}
		kind := d.Next() // which moves d to the element's first byte
		raw, err := d.Raw()
		if err != nil {
			return errSyntax
		}
		q := p.addCheck()
		q.err = p.parseElement(kind, raw, q)
	}
	if elements.Err() != nil {
		return errSyntax
	}
	if len(p.checks) == 0 {
		return invalid("checks", "is empty; give 1 to 100 questions")
	}
	return nil
}

func (p *parser) parseElement(kind jx.Type, raw []byte, q *question) error {
	if kind != jx.Object {
		return invalid("", "a question must be a JSON object")
	}
	if p.broken && problem.HalfSurrogate(raw) {
		return errHalfSurrogate()
	}
	p.element.ResetBytes(raw)
	return p.parseObject(&p.element, q, formElement)
}

// addCheck returns the next of several questions, empty, in memory that was used before.
func (p *parser) addCheck() *question {
	if n := len(p.checks); n < cap(p.checks) {
		p.checks = p.checks[:n+1]
	} else {
		p.checks = append(p.checks, question{})
	}
	q := &p.checks[len(p.checks)-1]
	q.reset()
	return q
}

// text returns the arena as a string, which is good for ever.
func (p *parser) text() string {
	if p.texts.Cap()-p.texts.Len() < len(p.arena) {
		p.texts.Reset() // those who still have a string of the former ones keep their memory
		p.texts.Grow(max(textsSize, len(p.arena)))
	}
	from := p.texts.Len()
	p.texts.Write(p.arena)
	return p.texts.String()[from:]
}

// fill turns a question without an err into a query. arena is the parser's text; out must be
// empty.
func (q *question) fill(arena string, out *limit.Query) {
	str := func(t text) string { return arena[t.from:t.to] }
	out.Policy, out.Limit = str(q.policy), str(q.limit)
	out.Key, out.HasKey = str(q.key), q.seen&fieldKey != 0
	out.Amount, out.HasAmount = q.amount, q.hasAmount
	out.Ticket, out.RequestID, out.MaxWait = q.ticket, str(q.requestID), q.maxWait
	for _, a := range q.attributes {
		out.Attributes = append(out.Attributes, limit.Attribute{Name: str(a.name), Value: str(a.value)})
	}
	for _, c := range q.costs {
		out.Costs = append(out.Costs, limit.UnitCost{Unit: str(c.unit), Amount: c.amount})
	}
}

func invalid(field, reason string) error {
	return &limit.InvalidError{Field: field, Reason: reason}
}

func errHalfSurrogate() error {
	return invalid("", problem.HalfSurrogateReason)
}

// syntaxError says where body stops being JSON. It quotes nothing, for that might be a value.
func syntaxError(body []byte) error {
	var whole json.RawMessage
	var at *json.SyntaxError
	if err := json.Unmarshal(body, &whole); errors.As(err, &at) {
		return invalid("", "the body is not one JSON object: it goes wrong at byte "+strconv.FormatInt(at.Offset, 10))
	}
	return invalid("", "the body is not one JSON object")
}
