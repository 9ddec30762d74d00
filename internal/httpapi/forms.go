package httpapi

import (
	"strings"
	"time"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
)

const (
	maxRequestID = 256      // bytes of a request_id
	maxTicket    = 48 << 10 // bytes of a ticket; one of 50 limits with long keys and names has fewer
	longestWait  = 10 * time.Minute
)

// form is a kind of JSON object that a client may send.
type form uint8

const (
	formCheck   form = iota // the body of a check
	formElement             // one question of checks
	formFinish              // the body of a finish
	formRenew               // the body of a renewal
)

// fields returns the fields that the form has.
func (f form) fields() field {
	const question = fieldPolicy | fieldLimit | fieldKey | fieldAttributes | fieldCost | fieldTicket | fieldRequestID | fieldMaxWait
	switch f {
	case formElement:
		return question
	case formFinish:
		return fieldTicket | fieldCost
	case formRenew:
		return fieldTicket
	default:
		return question | fieldChecks
	}
}

// example is a body of the form.
func (f form) example() string {
	switch f {
	case formFinish:
		return `{"ticket": "…", "cost": {"tokens": 843}}`
	case formRenew:
		return `{"ticket": "…"}`
	default:
		return `{"policy": "chat", "attributes": {"user": "u42"}}`
	}
}

// checkTogether refuses fields that exclude each other, and the lack of those that must be there.
func (f form) checkTogether(seen field) error {
	switch {
	case f == formFinish || f == formRenew:
		if seen&fieldTicket == 0 {
			return invalid("ticket", "missing; write the ticket that came with the decision")
		}
		return nil
	case seen&fieldChecks != 0 && seen != fieldChecks:
		return invalid("checks", "stands alone; put the other fields into each of its questions")
	case seen&fieldChecks != 0:
		return nil
	case seen&fieldPolicy != 0 && seen&fieldLimit != 0:
		return invalid("limit", "goes without policy; name one of the two")
	case seen&(fieldPolicy|fieldLimit) == 0:
		return invalid("policy", "missing; name a policy, or a single limit in limit")
	default:
		return nil
	}
}

// unknown is the error for a field that the form does not have.
func (f form) unknown(name string) error {
	if f == formElement && name == "checks" {
		return invalid(name, "a question of checks holds no checks")
	}
	var known []string
	for i, n := range fieldNames {
		if f.fields()&(1<<i) != 0 {
			known = append(known, n)
		}
	}
	reason := "unknown field; there are " + strings.Join(known, ", ")
	switch f {
	case formCheck, formElement:
		reason += "; an attribute goes inside attributes"
	case formRenew:
		reason = "unknown field; there is ticket alone"
	}
	return invalid(name, reason)
}

// parseTicket reads whether a ticket is wanted, or the ticket that is to be settled. One that is
// longer than any of ours is limit.ErrForged.
func (p *parser) parseTicket(d *jx.Decoder, f form, q *question) (err error) {
	if f == formFinish || f == formRenew {
		q.sealed, err = p.parseString(d, "ticket", "must be a string: the ticket that came with the decision")
		switch {
		case err != nil:
			return err
		case q.sealed.length() == 0:
			return invalid("ticket", "empty; write the ticket that came with the decision")
		case q.sealed.length() > maxTicket:
			return limit.ErrForged
		}
		return nil
	}
	if kind := d.Next(); kind != jx.Bool {
		return wrongType(kind, "ticket", "must be true or false")
	}
	if q.ticket, err = d.Bool(); err != nil {
		return errSyntax
	}
	return nil
}

func (p *parser) parseRequestID(d *jx.Decoder, q *question) (err error) {
	const reason = "must be a string of 1 to 256 bytes"
	q.requestID, err = p.parseString(d, "request_id", reason)
	if n := q.requestID.length(); err == nil && (n == 0 || n > maxRequestID) {
		err = invalid("request_id", reason)
	}
	return err
}

// parseMaxWait reads how long the answer may be held back. A question of checks holds nobody up.
func parseMaxWait(d *jx.Decoder, f form, q *question) error {
	wait, err := parseWhole(d, "max_wait_ms", longestWait.Milliseconds())
	if err == nil && wait > 0 && f == formElement {
		err = invalid("max_wait_ms", "a question of checks cannot wait; ask it in a request of its own")
	}
	q.maxWait = time.Duration(wait) * time.Millisecond
	return err
}
