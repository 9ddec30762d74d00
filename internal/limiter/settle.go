package limiter

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// prepare says what the store is asked of the question besides its charges. The charges are resolved. It
// is a limit.InvalidError when a slot would be free again before the answer may be given.
func (q *question) prepare(rules *limit.Rules, query *limit.Query) error {
	q.asks.MaxWait, q.asks.List = query.MaxWait, query.Peek
	q.direct = query.MaxWait > 0 || query.RequestID != ""
	q.ticket = query.Ticket
	q.asks.Life = lifeOf(rules, q.charges) + query.MaxWait
	for i := range q.charges {
		if c := &q.charges[i]; takesSlot(c) {
			if query.MaxWait >= ttlOf(c) {
				return &limit.InvalidError{Field: "max_wait_ms", Reason: "must be below the ttl of limit " + strconv.Quote(c.Limit.Name) + ", whose slot counts from the charge"}
			}
			q.ticket = true
		}
	}
	if query.RequestID != "" && len(q.charges) > 0 {
		q.asks.Grant, q.asks.GrantTTL = q.policy.GrantKey(query, q.charges), rules.RequestIDTTL+query.MaxWait
	}
	if q.ticket || q.asks.Grant != "" || q.asks.MaxWait > 0 {
		q.asks.ID = rand.Text()
	}
	return nil
}

// takesSlot reports whether the charge is for a slot.
func takesSlot(c *limit.Charge) bool {
	return c.Settings.Algorithm == limit.ConcurrencyAlgorithm && c.Cost > 0
}

func ttlOf(slot *limit.Charge) time.Duration {
	return time.Duration(slot.Settings.Slots.TTL) * time.Microsecond
}

// ticketOf returns what was charged for an allowed question: what the store's verdicts say of the
// charges that it was asked about. A question that no limit applies to has charged nothing.
func (l *Limiter) ticketOf(q *question, verdicts []limit.Verdict, arrival time.Time) *limit.Ticket {
	d := q.decision
	t := &limit.Ticket{ID: d.ID, Expires: d.Expires, Policy: q.policy.Name}
	if d.ID == "" {
		t.ID, t.Expires = q.asks.ID, arrival.Add(q.asks.Life).UnixMicro()
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.Allowed && v.Known {
			t.Charges = append(t.Charges, q.asks.Charges[i])
			t.Marks = append(t.Marks, v.Mark)
		}
	}
	if len(t.Charges) > 0 && (d.Degraded || l.embedded) {
		t.Home = l.home
	}
	return t
}

// early denies a repeated question whose turn has not come yet, and which does not want to wait for
// it as long as the first one did: asked again after that time, it gets its grant.
func (q *question) early() {
	d := q.decision
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if still := v.Hold - d.Age; still > q.asks.MaxWait && !v.Limit.Shadow {
			v.Allowed, v.RetryAfter, v.Hold = false, still-q.asks.MaxWait, 0
		}
	}
}

// hold waits until what the only question has charged has drained from its leaky buckets. When ctx
// ends before, because the caller is gone or this process is about to go, the charges are given back
// if nothing was charged after them, but not those of a request_id, which may be asked again.
func (l *Limiter) hold(ctx context.Context, s *scratch) {
	q := &s.questions[0]
	d := q.decision
	if d.Err != nil || q.asks.MaxWait == 0 {
		return
	}
	d.Conclude()
	wait := d.Hold() - d.Age
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return
	case <-ctx.Done():
	}
	if q.asks.Grant == "" {
		settlement := &limit.Settlement{Act: limit.GiveBack, Ticket: l.ticketOf(q, d.Verdicts, time.Now())}
		// Nobody is told when it fails: the caller is gone, and the store counts its errors.
		_, _ = l.settle(context.WithoutCancel(ctx), time.Now(), settlement)
	}
	d.Err = &limit.StoreError{Failure: limit.FailureCanceled, Err: ctx.Err()}
}

// Settlement is how a client settles a ticket.
type Settlement struct {
	Ticket    string
	Costs     []limit.UnitCost // what was used in the end; a unit that is not named stays as charged
	Amount    int64            // the same without a unit, when HasAmount: of the single limit, in a policy requests
	HasAmount bool
}

// Finish settles a ticket: it charges or gives back the difference to what was charged, and frees the
// slots. Done is false when it had been finished before. The error is a limit.InvalidError when the
// question is at fault, limit.ErrForged, limit.ErrExpired, limit.ErrWrongType, or limit.ErrUnavailable
// when the store gave no answer: then asking again is safe.
func (l *Limiter) Finish(ctx context.Context, arrival time.Time, s *Settlement) (limit.Settled, error) {
	t, err := l.open(s.Ticket)
	if err != nil {
		return limit.Settled{}, err
	}
	actual, err := t.Actual(s.Costs, s.Amount, s.HasAmount)
	if err != nil {
		return limit.Settled{}, err
	}
	return l.settle(ctx, arrival, &limit.Settlement{Act: limit.Finish, Ticket: t, Actual: actual})
}

// Renew lets the slots of a ticket last for another ttl, and returns the ticket with its new expiry.
// The errors are those of Finish; limit.ErrExpired too when the ticket was finished.
func (l *Limiter) Renew(ctx context.Context, arrival time.Time, ticket string) (string, error) {
	t, err := l.open(ticket)
	if err != nil {
		return "", err
	}
	answer, err := l.settle(ctx, arrival, &limit.Settlement{Act: limit.Renew, Ticket: t})
	if err != nil {
		return "", err
	}
	t.Expires = max(t.Expires, answer.At+lifeOf(l.Rules(), t.Charges).Microseconds())
	return t.Seal(l.secret()), nil
}

// lifeOf returns how long a ticket of these charges may be settled: at least as long as its slots may be
// held.
func lifeOf(rules *limit.Rules, charges []limit.Charge) time.Duration {
	life := rules.TicketTTL
	for i := range charges {
		if c := &charges[i]; takesSlot(c) {
			life = max(life, ttlOf(c))
		}
	}
	return life
}

// open opens a ticket of this process or of the shared store.
func (l *Limiter) open(text string) (*limit.Ticket, error) {
	rules := l.Rules()
	t, err := limit.OpenTicket(text, []limit.Secret{l.secret(), l.former()}, l.home, func(name string) (*time.Location, error) {
		if zone := rules.Zone(name); zone != nil {
			return zone, nil
		}
		return time.LoadLocation(name)
	})
	if err != nil {
		return nil, err
	}
	if l.embedded && t.Home == 0 && len(t.Charges) > 0 {
		return nil, limit.ErrExpired // it is of a store that is not this one
	}
	rules.Current(t)
	return t, nil
}

// settle asks the store. Nothing is denied from what is known here while tokens are on their way back.
func (l *Limiter) settle(ctx context.Context, arrival time.Time, s *limit.Settlement) (limit.Settled, error) {
	charges := s.Ticket.Charges
	if len(charges) == 0 { // no limit applied: there is nothing to settle, and no store to ask
		if arrival.UnixMicro() >= s.Ticket.Expires {
			return limit.Settled{}, limit.ErrExpired
		}
		return limit.Settled{Done: s.Act != limit.Renew, At: arrival.UnixMicro()}, nil
	}
	s.Deadline, s.Life = arrival.Add(l.timeout), lifeOf(l.Rules(), charges)
	shared := l.tier != nil && s.Ticket.Home == 0
	if shared {
		for i := range charges {
			charges[i].Hash = l.hasher.Hash(charges[i].Key)
			l.tier.BeginCredit(charges[i].Hash)
		}
	}
	answer, err := l.store.Settle(ctx, s)
	if shared {
		for i := range charges {
			l.tier.EndCredit(time.Now(), charges[i].Hash)
		}
	}
	return answer, err
}
