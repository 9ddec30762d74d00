package remote

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/tidegate/tidegate/internal/limit"
)

// errReply means that the script answered something that it never does.
var errReply = errors.New("remote: the script's reply makes no sense")

// reply reads a script's reply, a msgpack array.
type reply struct {
	rest []byte
	now  int64 // Redis's time, in µs
	err  error
}

// readReply begins to read a reply.
func readReply(text string) reply {
	var r reply
	if _, r.rest, r.err = msgp.ReadArrayHeaderBytes([]byte(text)); r.err == nil {
		r.now = r.next()
	}
	return r
}

func (r *reply) next() int64 {
	if r.err != nil {
		return 0
	}
	var n int64
	n, r.rest, r.err = msgp.ReadInt64Bytes(r.rest)
	return n
}

// text reads a string, which a script may have packed as one or as binary.
func (r *reply) text() string {
	if r.err != nil {
		return ""
	}
	var text []byte
	text, r.rest, r.err = msgp.ReadStringZC(r.rest)
	return string(text)
}

func (r *reply) failed() error {
	if r.err != nil {
		return fmt.Errorf("%w: %w", errReply, r.err)
	}
	return nil
}

// remarks is what a reply says besides the answers. The requests that the script left alone, by their
// place, were charged nothing, and get no Tier.
type remarks struct {
	expired []int         // past their deadline
	outside []int         // now is outside the calendar periods that came along
	took    time.Duration // how long Redis was busy with the call; 0: it does not say
}

// unpack reads the answers to requests into decisions, which get a Tier. After an error no decision
// has one. Leases are read for every request with Orders, whatever became of it; those of a request
// without any stay as they are, since it may be asked again after its Orders were carried out.
func unpack(text string, requests []limit.Request, decisions []*limit.Decision) (remarks, error) {
	var said remarks
	r := readReply(text)
	for i := range requests {
		d := decisions[i]
		d.Verdicts = d.Verdicts[:0]
		switch code := r.next(); code {
		case codeExpired:
			said.expired = append(said.expired, i)
		case codeOutside:
			said.outside = append(said.outside, i)
		case codeWrongType:
			d.Tier, d.Err = limit.TierRedis, wrongType(requests[i].Charges)
		case codeRepeated:
			granted := readReply(r.text())
			d.Tier, d.At = limit.TierRedis, granted.now
			d.Age = time.Duration(max(0, r.now-granted.now)) * time.Microsecond
			d.Repeated = true
			granted.repeated(&requests[i], d)
			if granted.err != nil { // what lies under its key is none
				*d = limit.Decision{Tier: limit.TierRedis, Err: wrongType(requests[i].Charges), Verdicts: d.Verdicts[:0], Leases: d.Leases}
			}
		case codeAllowed, codeDenied:
			d.Tier, d.At = limit.TierRedis, r.now
			d.ID, d.Expires = requests[i].ID, r.now+requests[i].Life.Microseconds()
			r.verdicts(&requests[i], d)
		default:
			r.err = errReply
		}
	}
	for i := range requests {
		if len(requests[i].Orders) > 0 {
			r.leases(len(requests[i].Orders), decisions[i])
		}
	}
	if err := r.failed(); err != nil {
		for _, d := range decisions {
			d.Reset()
		}
		return remarks{}, err
	}
	if len(requests) > 1 && len(r.rest) > 0 {
		said.took = time.Duration(max(0, r.next())) * time.Microsecond
	}
	return said, nil
}

// verdicts reads what the script says of each charge.
func (r *reply) verdicts(q *limit.Request, d *limit.Decision) {
	for i := range q.Charges {
		v := limit.NewVerdict(&q.Charges[i], q.MaxWait, r.next(), r.next(), r.next())
		v.Out = r.out(q.Charges[i].Settings)
		if q.ID != "" {
			v.Mark = r.next()
		}
		d.Verdicts = append(d.Verdicts, v)
		if q.List {
			d.Lists = append(d.Lists, r.listed())
		}
	}
}

// out reads how much of a leased limit is out.
func (r *reply) out(s *limit.Settings) int64 {
	if s.Hold == 0 {
		return 0
	}
	return r.next()
}

// leases reads what was lent for so many orders.
func (r *reply) leases(orders int, d *limit.Decision) {
	d.Leases = d.Leases[:0]
	for range orders {
		d.Leases = append(d.Leases, limit.Lease{
			Epoch: r.next(), Slot: r.next(), Tokens: r.next(), Usable: time.Duration(r.next()) * time.Microsecond,
		})
	}
}

func (r *reply) listed() []limit.Listed {
	var all []limit.Listed
	for n := r.next(); n > 0 && r.err == nil; n-- {
		all = append(all, limit.Listed{Cost: r.next(), Age: r.next(), Due: r.next()})
	}
	return all
}

// repeated reads a grant that was remembered. The same question cost as much. It is answered as then,
// however long it would wait now.
func (r *reply) repeated(q *limit.Request, d *limit.Decision) {
	d.Expires = r.next()
	d.ID = r.text()
	hold, flags := time.Duration(r.next())*time.Microsecond, r.next()
	same := r.next() == int64(len(q.Charges))
	for i := 0; same && i < len(q.Charges); i++ {
		same = r.next() == q.Charges[i].Cost
	}
	if !same {
		d.Err = limit.OtherCost()
		return
	}
	r.verdicts(&limit.Request{Charges: q.Charges, MaxWait: hold, ID: d.ID, List: flags >= flagLists}, d)
}

// unpackSettled reads the answer to a settlement. again says that the script left it alone, as it
// does a request that is expired or outside.
func unpackSettled(text string, s *limit.Settlement) (answer limit.Settled, again int64, err error) {
	r := readReply(text)
	answer.At = r.now
	switch code := r.next(); code {
	case codeAllowed, codeDenied:
		answer.Done = code == codeAllowed
		for i := range s.Ticket.Charges {
			v := limit.NewVerdict(&s.Ticket.Charges[i], 0, 0, r.next(), r.next())
			v.Out = r.out(s.Ticket.Charges[i].Settings)
			answer.Verdicts = append(answer.Verdicts, v)
		}
	case codeExpired, codeOutside:
		again = code
	case codeWrongType:
		err = wrongType(s.Ticket.Charges)
	case codeGone:
		err = limit.ErrExpired
	case codeTooDeep:
		if i := r.next(); i >= 1 && i <= int64(len(s.Ticket.Charges)) {
			err = s.TooDeep(int(i - 1))
		} else {
			r.err = errReply
		}
	default:
		r.err = errReply
	}
	if r.err != nil {
		return limit.Settled{}, 0, r.failed()
	}
	return answer, again, err
}

// unpackForget reads the answer of the script that forgets. outside says that the script left the key alone,
// since now is outside the calendar periods that came along: it must be asked again.
func unpackForget(text string) (outside bool, err error) {
	r := readReply(text)
	switch code := r.next(); code {
	case codeAllowed:
	case codeOutside:
		outside = true
	default:
		r.err = errReply
	}
	return outside, r.failed()
}

// wrongType says in which of the charges' keys something else lies: one of them, by a short hash of
// each, since a key holds attributes' values.
func wrongType(charges []limit.Charge) error {
	var keys []string
	for i := range charges {
		keys = append(keys, charges[i].Limit.Name+" "+limit.KeyHash(charges[i].Key))
	}
	return fmt.Errorf("%w: one of the keys (limit and hash of the key) %s", limit.ErrWrongType, strings.Join(keys, ", "))
}
