package limit

import "time"

// Attribute is one named value of a question.
type Attribute struct{ Name, Value string }

// Attributes are the named values of a question, few enough to be searched in order.
type Attributes []Attribute

// Get returns the value of the named attribute, and whether it is there.
func (a Attributes) Get(name string) (string, bool) {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value, true
		}
	}
	return "", false
}

// UnitCost is what a question costs in one unit.
type UnitCost struct {
	Unit   string
	Amount int64
}

// Query is a question as a client asks it. Exactly one of Policy and Limit is set.
type Query struct {
	Policy     string
	Limit      string
	Attributes Attributes
	Key        string // the value of the limit's single key attribute, when HasKey
	HasKey     bool
	Costs      []UnitCost
	Amount     int64 // the cost without a unit, when HasAmount
	HasAmount  bool
	Peek       bool // ask without charging, whatever the costs; and say who holds slots and what waits

	Ticket    bool          // a ticket is wanted
	RequestID string        // remembers a grant; empty: none
	MaxWait   time.Duration // how long the answer may be held back until a leaky_bucket has drained; 0: not at all
}

// Reset empties the query for the next use, keeping its memory.
func (q *Query) Reset() {
	*q = Query{Attributes: q.Attributes[:0], Costs: q.Costs[:0]}
}
