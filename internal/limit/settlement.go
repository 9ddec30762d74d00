package limit

import "time"

// Act is what a settlement does.
type Act uint8

// The acts. There is no zero act.
const (
	Finish   Act = iota + 1 // charge what is to be charged in the end, and free the slots; once
	Renew                   // let the slots last longer
	GiveBack                // undo the decision; only free its slots if something was charged after it in its leaky buckets
)

// Settlement is what a store does with the charges of a ticket, in one atomic step.
type Settlement struct {
	Act      Act
	Ticket   *Ticket
	Actual   []int64       // beside Ticket.Charges; what each costs in the end; of Finish
	Life     time.Duration // how long a ticket that is renewed now may be settled
	Deadline time.Time
}

// Marker is the key that says that a ticket was finished or given back. The ticket has at least one charge.
func (t *Ticket) Marker() string { return keyBeside(t.Charges[0].Key, "finish", t.ID) }

// MarkedUntil returns until when, in µs since 1970, a store that settles the ticket at now must know
// that it did: until no form of the ticket is good any more, not even one that was renewed just before.
func (s *Settlement) MarkedUntil(now int64) int64 {
	return max(s.Ticket.Expires, now+s.Life.Microseconds())
}

// Payment returns what becomes of the ticket's charge i.
func (s *Settlement) Payment(i int) Payment {
	p := Payment{Charged: s.Ticket.Charges[i].Cost, Mark: s.Ticket.Marks[i], ID: s.Ticket.ID}
	if s.Act == Finish {
		p.Actual = s.Actual[i]
	}
	return p
}

// Settled is the answer to a settlement.
type Settled struct {
	Done     bool      // false: the ticket had been finished before
	At       int64     // the store's time, µs since 1970
	Verdicts []Verdict // what is left of each limit, beside Ticket.Charges
}

// TooDeep returns the error of a settlement whose charge i would leave a debt that nobody could pay.
func (s *Settlement) TooDeep(i int) error {
	return invalid("cost."+s.Ticket.Charges[i].Limit.Unit, "leaves a debt on limit %q that takes more than 100 years to pay", s.Ticket.Charges[i].Limit.Name)
}

// OtherCost returns the error of a question whose request_id was granted with another cost.
func OtherCost() error {
	return invalid("request_id", "was granted with another cost before; ask with that cost again, or give another request_id")
}
