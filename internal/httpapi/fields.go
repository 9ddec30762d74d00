package httpapi

import (
	"strconv"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/problem"
)

// field is a member of an object that a client sends, as a bit.
type field uint16

const (
	fieldPolicy field = 1 << iota
	fieldLimit
	fieldKey
	fieldAttributes
	fieldCost
	fieldTicket
	fieldRequestID
	fieldMaxWait
	fieldChecks
)

// fieldNames are the names of the fields, in the order of their bits.
var fieldNames = [...]string{"policy", "limit", "key", "attributes", "cost", "ticket", "request_id", "max_wait_ms", "checks"}

func fieldOf(name []byte) field {
	switch string(name) {
	case "policy":
		return fieldPolicy
	case "limit":
		return fieldLimit
	case "key":
		return fieldKey
	case "attributes":
		return fieldAttributes
	case "cost":
		return fieldCost
	case "ticket":
		return fieldTicket
	case "request_id":
		return fieldRequestID
	case "max_wait_ms":
		return fieldMaxWait
	case "checks":
		return fieldChecks
	default:
		return 0
	}
}

// parseField reads the value of one field of a form into q. d stands before the value.
func (p *parser) parseField(d *jx.Decoder, in form, f field, q *question) (err error) {
	switch f {
	case fieldPolicy:
		q.policy, err = p.parseName(d, "policy")
	case fieldLimit:
		q.limit, err = p.parseName(d, "limit")
	case fieldKey:
		q.key, err = p.parseString(d, "key", `must be a string, such as "u42"`)
	case fieldAttributes:
		err = p.parseAttributes(d, q)
	case fieldCost:
		err = p.parseCost(d, q)
	case fieldTicket:
		err = p.parseTicket(d, in, q)
	case fieldRequestID:
		err = p.parseRequestID(d, q)
	case fieldMaxWait:
		err = parseMaxWait(d, in, q)
	case fieldChecks:
		err = p.parseChecks(d)
	}
	return err
}

// parseName reads the name of a policy or limit.
func (p *parser) parseName(d *jx.Decoder, name string) (text, error) {
	t, err := p.parseString(d, name, "must be a string: a name from the config")
	if err == nil && t.length() == 0 {
		err = invalid(name, "empty; write a name from the config")
	}
	return t, err
}

// parseString reads a string into the arena; anything else is wrong for the given reason.
func (p *parser) parseString(d *jx.Decoder, name, reason string) (text, error) {
	switch d.Next() {
	case jx.String:
	case jx.Invalid:
		return text{}, errSyntax
	default:
		return text{}, invalid(name, reason)
	}
	from := len(p.arena)
	arena, err := d.StrAppend(p.arena)
	if err != nil {
		return text{}, errSyntax
	}
	p.arena = arena
	return text{from: from, to: len(arena)}, nil
}

// keep copies a name into the arena.
func (p *parser) keep(name []byte) text {
	from := len(p.arena)
	p.arena = append(p.arena, name...)
	return text{from: from, to: len(p.arena)}
}

func (p *parser) is(t text, name []byte) bool { return string(p.arena[t.from:t.to]) == string(name) }

func (p *parser) parseAttributes(d *jx.Decoder, q *question) error {
	if kind := d.Next(); kind != jx.Object {
		return wrongType(kind, "attributes", `must be an object of strings, such as {"user": "u42"}`)
	}
	members, err := d.ObjIter()
	if err != nil {
		return errSyntax
	}
	for members.Next() {
		name := members.Key()
		if err := p.checkAttribute(name, q); err != nil {
			return err
		}
		a := attribute{name: p.keep(name)}
		if a.value, err = p.parseString(d, "attributes.", `must be a string, such as "42"`); err != nil {
			return inside(err, name)
		}
		q.attributes = append(q.attributes, a)
	}
	if members.Err() != nil {
		return errSyntax
	}
	return nil
}

// checkAttribute refuses a name that q cannot take in addition to those that it has.
func (p *parser) checkAttribute(name []byte, q *question) error {
	if len(name) == 0 {
		return invalid("attributes", "holds an empty name")
	}
	if len(q.attributes) == problem.MaxNamed {
		return invalid("attributes", "holds more than 64 names")
	}
	for i := range q.attributes {
		if p.is(q.attributes[i].name, name) {
			return invalid("attributes."+string(name), "given twice")
		}
	}
	return nil
}

func (p *parser) parseCost(d *jx.Decoder, q *question) (err error) {
	const reason = `must be a whole number from 0 to 2^53, or an object of them by unit, such as {"tokens": 1200}`
	switch kind := d.Next(); kind {
	case jx.Number:
		q.amount, err = parseWhole(d, "cost", limit.MaxNumber)
		q.hasAmount = true
		return err
	case jx.Object:
	default:
		return wrongType(kind, "cost", reason)
	}
	members, err := d.ObjIter()
	if err != nil {
		return errSyntax
	}
	for members.Next() {
		unit := members.Key()
		if len(q.costs) == problem.MaxNamed {
			return invalid("cost", "holds more than 64 units")
		}
		for i := range q.costs {
			if p.is(q.costs[i].unit, unit) {
				return invalid("cost."+string(unit), "given twice")
			}
		}
		c := unitCost{unit: p.keep(unit)}
		if c.amount, err = parseWhole(d, "cost.", limit.MaxNumber); err != nil {
			return inside(err, unit)
		}
		q.costs = append(q.costs, c)
	}
	if members.Err() != nil {
		return errSyntax
	}
	return nil
}

// parseWhole reads a whole number from 0 to most, which is at most 2^53, exactly or not at all.
func parseWhole(d *jx.Decoder, name string, most int64) (int64, error) {
	if kind := d.Next(); kind != jx.Number {
		return 0, wrongType(kind, name, "must be a whole number from 0 to "+numeral(most))
	}
	raw, err := d.Raw()
	if err != nil {
		return 0, errSyntax
	}
	var n int64
	for _, c := range raw {
		switch {
		case c == '-' && n == 0:
			return 0, invalid(name, "must not be negative")
		case c < '0' || c > '9':
			return 0, invalid(name, "must be a whole number in digits alone, without fraction or exponent")
		}
		if n = n*10 + int64(c-'0'); n > most {
			return 0, invalid(name, "must be at most "+numeral(most))
		}
	}
	return n, nil
}

// numeral writes a bound as people know it.
func numeral(most int64) string {
	if most == limit.MaxNumber {
		return "9007199254740992 (2^53)"
	}
	return strconv.FormatInt(most, 10)
}

// wrongType is the error for a value of a kind that is wrong for the given reason.
func wrongType(kind jx.Type, name, reason string) error {
	if kind == jx.Invalid {
		return errSyntax
	}
	return invalid(name, reason)
}

// inside completes the field of an error about a member of an object; the field ends in a dot.
func inside(err error, member []byte) error {
	if e, ok := err.(*limit.InvalidError); ok {
		return invalid(e.Field+string(member), e.Reason)
	}
	return err
}
