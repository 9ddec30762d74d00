package limit

import (
	"errors"
	"fmt"
	"time"
)

// Never is the wait of a cost that can never pass.
const Never = -1

// The errors that a caller branches on.
var (
	ErrUnknownPolicy = errors.New("limit: no such policy or limit")
	ErrTooSlow       = errors.New("limit: more than 100 years from empty to full")
	ErrTooCoarse     = errors.New("limit: too large for the arithmetic of its window")
	ErrExpired       = errors.New("limit: the ticket, or a slot that it stands for, has expired or was given up")
	ErrUnavailable   = errors.New("limit: the store did not answer in time")
	ErrWrongType     = errors.New("limit: a key holds something that is no state of its limit")
)

// InvalidError says which field of a question is wrong, why, and what to write instead.
type InvalidError struct {
	Field  string // as in the JSON API, such as "cost.tokens"
	Reason string // a sentence without a full stop, never with a value of an attribute
}

func (e *InvalidError) Error() string { return "limit: " + e.Field + ": " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Tier says who decided.
type Tier uint8

// The tiers. The zero tier is no answer yet.
const (
	TierNone     Tier = iota
	TierLocal         // this sidecar alone, for certain
	TierLease         // tokens that this sidecar holds on lease
	TierRedis         // the shared store
	TierEmbedded      // the store in this process
	TierFallback      // the degradation policy
)

var tierNames = [...]string{"none", "local", "lease", "redis", "embedded", "fallback"}

// String returns the tier's name in answers and metrics.
func (t Tier) String() string { return tierNames[t] }

// TierCount is the number of tiers, TierNone included.
const TierCount = len(tierNames)

// Charge is one limit's part of a request.
type Charge struct {
	Limit    *Limit
	Settings *Settings
	Key      string // the state's key in every store; empty until it is named, see Keys
	Hash     Hash   // the same within this process
	Override int    // which settings these are: 0 the limit's own, n those of its n-th override
	Cost     int64  // 0 asks without charging; above the settings' capacity it can never pass, and no store is asked

	from, to int // where the key stands in Keys
}

// Request is what a store decides in one atomic step: every charge of a limit that is not a
// shadow passes and all are charged, or none is. A shadow limit's charge is made when the
// request passes and the shadow limit itself would have passed it.
type Request struct {
	Charges  []Charge
	Deadline time.Time // a store that reads it later leaves the request alone; zero: none

	ID       string        // names what is charged, so that it can be settled; empty: nothing needs a name
	Life     time.Duration // how long a ticket of the decision may be settled
	MaxWait  time.Duration // a charge of a leaky_bucket passes when it has drained after that time at most
	Grant    string        // the key under which a grant is remembered, and found again; empty: it is not
	GrantTTL time.Duration // how long it is
	List     bool          // say who holds slots and what waits

	// Orders are what this node says of its leases; see LeaseOrder. A Request of nothing else has no
	// Charges, and is allowed without a verdict.
	Orders []LeaseOrder
}

// Verdict is one limit's answer. Durations are exact to a microsecond.
type Verdict struct {
	Limit      *Limit
	Settings   *Settings
	Allowed    bool
	Never      bool          // the cost can never pass; RetryAfter is 0
	Known      bool          // Remaining and ResetAfter were read from the state
	Remaining  int64         // what is left after this request; below 0 in debt
	Out        int64         // of a leased limit: how much is out on lease besides, all of which may come back
	RetryAfter time.Duration // how long until the same cost passes; 0 when allowed
	ResetAfter time.Duration // how long until the limit is as if unused
	Hold       time.Duration // of a leaky_bucket: how long after the decision the charge has drained; 0: at once
	Mark       int64         // names what was charged; only of a request with an ID, see Settings.Mark
}

// NewVerdict returns the verdict on a charge of which a store knows how many µs it must wait (0
// passes, Never), what is left, and how many µs it takes until the limit is as if unused. maxWait is
// the request's.
func NewVerdict(c *Charge, maxWait time.Duration, wait, left, reset int64) Verdict {
	v := Verdict{
		Limit: c.Limit, Settings: c.Settings, Known: true,
		Allowed: wait == 0, Never: wait == Never,
		Remaining: left, ResetAfter: time.Duration(reset) * time.Microsecond,
	}
	if wait <= 0 {
		return v
	}
	v.RetryAfter = time.Duration(wait) * time.Microsecond
	if c.Settings.Algorithm != LeakyBucketAlgorithm {
		return v
	}
	if v.RetryAfter > maxWait {
		v.RetryAfter -= maxWait // after that the same question passes, and waits for the rest
		return v
	}
	v.Allowed, v.Hold, v.RetryAfter = true, v.RetryAfter, 0
	return v
}

// Denies reports whether the verdict refuses the request.
func (v *Verdict) Denies() bool { return !v.Allowed && !v.Limit.Shadow }

// Decision is the answer to a request.
type Decision struct {
	Allowed    bool
	Never      bool // a denying limit can never pass the cost; RetryAfter is 0
	Degraded   bool // the shared store did not take part
	Tier       Tier
	RetryAfter time.Duration // the longest of the denying limits; 0 when allowed
	Verdicts   []Verdict     // in the policy's order
	Lists      [][]Listed    // beside Verdicts, when the request asked for them
	Leases     []Lease       // beside the request's Orders

	ID       string        // of the decision: the request's, or that of the earlier one that it repeats
	At       int64         // when it was decided, in the store's time, µs since 1970
	Repeated bool          // it is the answer to an earlier question with the same Grant
	Age      time.Duration // how long ago it was decided; 0 unless Repeated
	Expires  int64         // until when it may be settled, in the same; of a request with an ID
	Ticket   string        // sealed; empty: none
	Err      error         // why there is no answer; see limiter.Decide. Nothing but Degraded and Tier is valid then
}

// Reset empties the decision for the next use, keeping its memory.
func (d *Decision) Reset() { *d = Decision{Verdicts: d.Verdicts[:0], Leases: d.Leases[:0]} }

// Hold returns how long after the decision its answer is to be given: when all that was charged has
// drained. A shadow limit holds nothing up.
func (d *Decision) Hold() time.Duration {
	var longest time.Duration
	if d.Allowed {
		for i := range d.Verdicts {
			if v := &d.Verdicts[i]; !v.Limit.Shadow {
				longest = max(longest, v.Hold)
			}
		}
	}
	return longest
}

// Conclude sets Allowed, Never and RetryAfter from the verdicts.
func (d *Decision) Conclude() {
	d.Allowed, d.Never, d.RetryAfter = true, false, 0
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Denies() {
			d.Allowed = false
			d.Never = d.Never || v.Never
			d.RetryAfter = max(d.RetryAfter, v.RetryAfter)
		}
	}
	if d.Never {
		d.RetryAfter = 0
	}
}
