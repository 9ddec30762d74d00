package remote

import (
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/tidegate/tidegate/internal/limit"
)

// The codes of a request in a script's reply.
const (
	codeDenied    = 0 // or not done
	codeAllowed   = 1 // or done
	codeExpired   = 2 // past its deadline
	codeWrongType = 3
	codeRepeated  = 4
	codeOutside   = 5 // of the calendar periods that came along
	codeGone      = 6 // the ticket has expired
	codeTooDeep   = 7
)

// noteKind is the kind of a key that holds a note; see lua/note.lua.
const noteKind = 1

// call is one call of the script: the keys and the packed arguments that lua/decide.lua describes.
type call struct {
	keys     []string
	kinds    []int64
	index    map[string]int64 // key → its place in keys, counted from 1; nil while keys are few
	settings []*limit.Settings
	requests []byte // packed, with the orders, without what batch.lua reads before them
	numbers  int    // how many are in requests
	args     []byte // packed
	charging bool   // some charge costs something
}

// fewKeys is how many keys are searched in order before an index is made.
const fewKeys = 8

// reset empties the call and keeps its memory.
func (c *call) reset() {
	*c = call{keys: c.keys[:0], kinds: c.kinds[:0], settings: c.settings[:0], requests: c.requests[:0], args: c.args[:0]}
}

// pack writes the arguments that ask for requests. clock turns a local time into Redis's, which it
// returns 0 for when none is known. now is 0 outside tests.
func (c *call) pack(now int64, requests []limit.Request, clock func(time.Time) int64) {
	c.reset()
	c.orders(requests, clock)
	c.put(int64(len(requests)))
	for i := range requests {
		r := &requests[i]
		c.put(deadline(r, clock))
		c.more(r)
		c.put(int64(len(r.Charges)))
		for j := range r.Charges {
			ch := &r.Charges[j]
			c.put(c.key(ch))
			c.put(c.setting(ch.Settings))
			c.put(ch.Cost)
			c.put(flag(ch.Limit.Shadow))
			c.charging = c.charging || ch.Cost > 0
		}
	}
	c.finish(now, clock)
}

// deadline returns until when the request is to be carried out: at any time, when it asks nothing.
func deadline(r *limit.Request, clock func(time.Time) int64) int64 {
	if len(r.Charges) == 0 {
		return 0
	}
	return clock(r.Deadline)
}

// orders writes what the requests say of leases.
func (c *call) orders(requests []limit.Request, clock func(time.Time) int64) {
	count := 0
	for i := range requests {
		count += len(requests[i].Orders)
	}
	c.put(int64(count))
	if count == 0 {
		return
	}
	for i := range requests {
		for j := range requests[i].Orders {
			o := &requests[i].Orders[j]
			c.put(c.place(o.Key, kindOf(o.Settings, o.Limit)))
			c.put(c.setting(o.Settings))
			c.put(o.Want)
			c.put(deadline(&requests[i], clock))
			c.put(int64(len(o.Reports)))
			for _, r := range o.Reports {
				c.put(r.Epoch)
				c.put(r.Slot)
				c.put(r.Used)
				c.put(r.Unused)
			}
		}
	}
}

// The flags of what a request is answered besides.
const (
	flagMarks = 1
	flagLists = 2
)

// more writes what few requests have.
func (c *call) more(r *limit.Request) {
	if r.ID == "" && r.MaxWait == 0 && !r.List {
		c.put(0)
		return
	}
	c.put(1)
	c.put(r.MaxWait.Microseconds())
	c.put(flag(r.ID != "")*flagMarks + flag(r.List)*flagLists)
	c.text(r.ID)
	if r.Grant == "" {
		c.put(0)
	} else {
		c.put(c.place(r.Grant, noteKind))
	}
	c.put(max(1, r.GrantTTL.Milliseconds()))
	c.put(r.Life.Microseconds())
}

// packSettlement writes the arguments that settle s.
func (c *call) packSettlement(now int64, s *limit.Settlement, clock func(time.Time) int64) {
	c.reset()
	c.charging = true
	c.put(1)
	c.put(clock(s.Deadline))
	c.put(int64(s.Act))
	c.put(s.Ticket.Expires)
	c.put(s.Life.Microseconds())
	c.put(c.place(s.Ticket.Marker(), noteKind))
	c.text(s.Ticket.ID)
	c.put(int64(len(s.Ticket.Charges)))
	for i := range s.Ticket.Charges {
		ch, p := &s.Ticket.Charges[i], s.Payment(i)
		c.put(c.key(ch))
		c.put(c.setting(ch.Settings))
		c.put(p.Charged)
		c.put(p.Actual)
		c.put(p.Mark)
	}
	c.finish(now, clock)
}

// packForget writes the arguments that make the state under the charge's key as if it were never used.
func (c *call) packForget(now int64, ch *limit.Charge, clock func(time.Time) int64) {
	c.reset()
	c.put(1)
	c.key(ch)
	c.put(c.setting(ch.Settings))
	c.finish(now, clock)
}

// finish puts what stands before them before the requests.
func (c *call) finish(now int64, clock func(time.Time) int64) {
	at := now
	if at == 0 {
		at = clock(time.Now())
	}
	b := msgp.AppendArrayHeader(c.args, uint32(2+len(c.kinds)+c.numbers))
	b = msgp.AppendInt64(b, now)
	b = msgp.AppendArrayHeader(b, uint32(len(c.settings)))
	var room [8]int64
	for _, s := range c.settings {
		numbers := appendNumbers(room[:0], s, at)
		b = msgp.AppendArrayHeader(b, uint32(len(numbers)))
		for _, n := range numbers {
			b = msgp.AppendInt64(b, n)
		}
	}
	for _, kind := range c.kinds {
		b = msgp.AppendInt64(b, kind)
	}
	c.args = append(b, c.requests...)
}

// appendNumbers appends the settings as the algorithm's .lua file wants them. now is about Redis's
// time: of a calendar window go along the boundaries of the periods around it.
func appendNumbers(dst []int64, s *limit.Settings, now int64) []int64 {
	w := &s.Window
	switch s.Algorithm {
	case limit.FixedWindowAlgorithm:
		dst = append(dst, w.Limit, w.Micros)
		if s.Hold > 0 {
			dst = append(dst, s.Hold)
		}
		if w.Period != 0 {
			boundaries := w.Boundaries(now)
			dst = append(dst, boundaries[:]...)
		}
		return dst
	case limit.SlidingWindowAlgorithm:
		return append(dst, w.Limit, w.Micros, w.Unit, w.Units)
	case limit.SlidingWindowLogAlgorithm:
		return append(dst, w.Limit, w.Micros)
	case limit.ConcurrencyAlgorithm:
		return append(dst, s.Slots.Limit, s.Slots.TTL)
	case limit.LeakyBucketLogAlgorithm:
		return append(dst, s.Bucket.Tokens, s.Bucket.Micros, s.Bucket.Burst)
	default:
		b := &s.Bucket
		dst = append(dst, b.Tokens, b.Micros, b.Grain, b.Burst, b.Initial, b.Lowest)
		if s.Hold > 0 {
			dst = append(dst, s.Hold)
		}
		return dst
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (c *call) put(n int64) {
	c.requests = msgp.AppendInt64(c.requests, n)
	c.numbers++
}

func (c *call) text(s string) {
	c.requests = msgp.AppendString(c.requests, s)
	c.numbers++
}

// key returns the place of the charge's key in KEYS.
func (c *call) key(ch *limit.Charge) int64 {
	return c.place(ch.Key, kindOf(ch.Settings, ch.Limit))
}

// kindOf returns the kind of a state's key.
func kindOf(s *limit.Settings, l *limit.Limit) int64 { return s.Number()*2 + int64(l.State) }

// place returns the place of a key of the given kind in KEYS.
func (c *call) place(key string, kind int64) int64 {
	if c.index == nil {
		if i := slices.Index(c.keys, key); i >= 0 {
			return int64(i + 1)
		}
	} else if i, ok := c.index[key]; ok {
		return i
	}
	c.keys = append(c.keys, key)
	c.kinds = append(c.kinds, kind)
	place := int64(len(c.keys))
	switch {
	case c.index != nil:
		c.index[key] = place
	case place > fewKeys:
		c.index = make(map[string]int64, 4*fewKeys)
		for i, k := range c.keys {
			c.index[k] = int64(i + 1)
		}
	}
	return place
}

func (c *call) setting(s *limit.Settings) int64 {
	i := slices.Index(c.settings, s)
	if i < 0 {
		i = len(c.settings)
		c.settings = append(c.settings, s)
	}
	return int64(i + 1)
}
