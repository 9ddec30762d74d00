package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/tidegate/tidegate/internal/limit"
)

// The codes of a request in a script's reply.
const (
	codeDenied    = 0
	codeAllowed   = 1
	codeExpired   = 2
	codeWrongType = 3
)

// call is one call of the script: the keys and the packed arguments that lua/decide.lua describes.
type call struct {
	keys     []string
	kinds    []int64
	index    map[string]int64 // key → its place in keys, counted from 1; nil while keys are few
	settings []*limit.Settings
	requests []byte // packed
	numbers  uint32 // how many are in requests
	args     []byte // packed
	charging bool   // some charge costs something
}

// fewKeys is how many keys are searched in order before an index is made.
const fewKeys = 8

// pack writes the arguments that ask for requests. deadline turns a request's deadline into
// Redis's time. now is 0 outside tests.
func (c *call) pack(now int64, requests []limit.Request, deadline func(time.Time) int64) {
	*c = call{keys: c.keys[:0], kinds: c.kinds[:0], settings: c.settings[:0], requests: c.requests[:0], args: c.args[:0]}
	for i := range requests {
		r := &requests[i]
		c.put(deadline(r.Deadline))
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
	total := 3 + uint32(len(c.kinds)) + c.numbers
	for _, s := range c.settings {
		total += 1 + uint32(len(numbersOf(s)))
	}
	b := msgp.AppendArrayHeader(c.args, total)
	b = msgp.AppendInt64(b, now)
	b = msgp.AppendInt64(b, int64(len(c.settings)))
	for _, s := range c.settings {
		numbers := numbersOf(s)
		b = msgp.AppendInt64(b, int64(len(numbers)))
		for _, n := range numbers {
			b = msgp.AppendInt64(b, n)
		}
	}
	for _, kind := range c.kinds {
		b = msgp.AppendInt64(b, kind)
	}
	b = msgp.AppendInt64(b, int64(len(requests)))
	c.args = append(b, c.requests...)
}

// numbersOf returns the settings as the algorithm's .lua file wants them.
func numbersOf(s *limit.Settings) [6]int64 {
	b := &s.Bucket
	return [...]int64{b.Tokens, b.Micros, b.Grain, b.Burst, b.Initial, b.Lowest}
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

// key returns the place of the charge's key in KEYS.
func (c *call) key(ch *limit.Charge) int64 {
	if c.index == nil {
		if i := slices.Index(c.keys, ch.Key); i >= 0 {
			return int64(i + 1)
		}
	} else if i, ok := c.index[ch.Key]; ok {
		return i
	}
	c.keys = append(c.keys, ch.Key)
	c.kinds = append(c.kinds, int64(ch.Limit.Algorithm)*2+int64(ch.Limit.State))
	place := int64(len(c.keys))
	switch {
	case c.index != nil:
		c.index[ch.Key] = place
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

// errReply means that the script answered something that it never does.
var errReply = errors.New("remote: the script's reply makes no sense")

// reply reads the numbers of a script's reply.
type reply struct {
	rest []byte
	err  error
}

func (r *reply) next() int64 {
	if r.err != nil {
		return 0
	}
	var n int64
	n, r.rest, r.err = msgp.ReadInt64Bytes(r.rest)
	return n
}

// timeOf returns Redis's time, in µs, from a script's reply; ok is false when it is none.
func timeOf(text []byte) (now int64, ok bool) {
	_, rest, err := msgp.ReadArrayHeaderBytes(text)
	if err != nil {
		return 0, false
	}
	now, _, err = msgp.ReadInt64Bytes(rest)
	return now, err == nil
}

// unpack reads the answers to requests into decisions, which get a Tier. expired lists the requests that were past their deadline: nothing was charged for them, and they
// get no Tier. After an error no decision has one.
func unpack(text []byte, requests []limit.Request, decisions []*limit.Decision) (expired []int, err error) {
	defer func() {
		if err != nil {
			for _, d := range decisions {
				d.Reset()
			}
		}
	}()
	_, rest, err := msgp.ReadArrayHeaderBytes(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, err)
	}
	r := reply{rest: rest}
	r.next() // Redis's time
	for i := range requests {
		d := decisions[i]
		d.Verdicts = d.Verdicts[:0]
		switch code := r.next(); code {
		case codeExpired:
			expired = append(expired, i)
		case codeWrongType:
			d.Tier, d.Err = limit.TierRedis, wrongType(requests[i].Charges)
		case codeAllowed, codeDenied:
			d.Tier = limit.TierRedis
			for j := range requests[i].Charges {
				d.Verdicts = append(d.Verdicts, limit.NewVerdict(&requests[i].Charges[j], r.next(), r.next(), r.next()))
			}
		default:
			return nil, errReply
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, r.err)
	}
	return expired, nil
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
