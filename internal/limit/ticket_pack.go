package limit

import (
	"encoding/binary"
	"math"
	"time"
)

// pack writes what is sealed of the ticket.
func (t *Ticket) pack() []byte {
	var b []byte
	b = appendInts(b, t.Expires, int64(len(t.Charges)))
	b = appendText(b, t.Policy)
	for i := range t.Charges {
		c := &t.Charges[i]
		b = appendText(b, c.Limit.Name)
		b = appendText(b, c.Limit.Unit)
		b = appendText(b, c.Key)
		b = appendInts(b, int64(c.Override), c.Cost, t.Marks[i], int64(c.Limit.State), flagOf(c.Limit.Shadow))
		b = c.Settings.pack(b)
	}
	return b
}

// pack writes the settings: the number of their arithmetic, the hold of a leased one, and the numbers that
// the algorithm uses.
func (s *Settings) pack(b []byte) []byte {
	b = appendInts(b, s.Number())
	if s.Hold > 0 {
		b = appendInts(b, s.Hold)
	}
	switch s.Algorithm {
	case ConcurrencyAlgorithm:
		return appendInts(b, s.Slots.Limit, s.Slots.TTL)
	case FixedWindowAlgorithm, SlidingWindowAlgorithm, SlidingWindowLogAlgorithm:
		w := &s.Window
		b = appendInts(b, w.Limit, w.Micros, w.Unit, w.Units, int64(w.Period))
		if w.Period != 0 {
			b = appendText(b, w.Zone.String())
		}
		return b
	default:
		k := &s.Bucket
		return appendInts(b, k.Tokens, k.Micros, k.Grain, k.Burst, k.Initial, k.Lowest)
	}
}

func flagOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func appendInts(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// unpack reads what pack wrote. It is ErrForged when plain is something else.
func (t *Ticket) unpack(plain []byte, zone func(string) (*time.Location, error)) error {
	r := packed{rest: plain}
	t.Expires = r.int()
	charges := r.int()
	t.Policy = r.text()
	for ; charges > 0 && !r.broken; charges-- {
		l := &Limit{Name: r.text(), Unit: r.text()}
		c := Charge{Limit: l, Settings: new(Settings), Key: r.text(), Override: int(r.int()), Cost: r.int()}
		t.Marks = append(t.Marks, r.int())
		l.State, l.Shadow = StateForm(r.int()), r.int() != 0
		r.settings(c.Settings, zone)
		l.Settings = *c.Settings
		t.Charges = append(t.Charges, c)
	}
	if r.broken || len(r.rest) > 0 {
		return ErrForged
	}
	return nil
}

// packed reads numbers and texts.
type packed struct {
	rest   []byte
	broken bool
}

func (r *packed) int() int64 {
	n, length := binary.Varint(r.rest)
	if length <= 0 {
		r.broken, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[length:]
	return n
}

func (r *packed) text() string {
	n, length := binary.Uvarint(r.rest)
	if length <= 0 || n > math.MaxInt32 || int(n) > len(r.rest)-length {
		r.broken, r.rest = true, nil
		return ""
	}
	text := string(r.rest[length : length+int(n)])
	r.rest = r.rest[length+int(n):]
	return text
}

func (r *packed) settings(s *Settings, zone func(string) (*time.Location, error)) {
	switch number := r.int(); number {
	case leasedBucketNumber:
		s.Algorithm, s.Hold = TokenBucketAlgorithm, r.int()
	case leasedWindowNumber:
		s.Algorithm, s.Hold = FixedWindowAlgorithm, r.int()
	default:
		s.Algorithm = Algorithm(number)
	}
	switch s.Algorithm {
	case ConcurrencyAlgorithm:
		s.Slots.Limit, s.Slots.TTL = r.int(), r.int()
	case FixedWindowAlgorithm, SlidingWindowAlgorithm, SlidingWindowLogAlgorithm:
		w := &s.Window
		w.Limit, w.Micros, w.Unit, w.Units, w.Period = r.int(), r.int(), r.int(), r.int(), Period(r.int())
		if w.Period != 0 && !r.broken {
			location, err := zone(r.text())
			w.Zone, r.broken = location, r.broken || err != nil
		}
	default:
		b := &s.Bucket
		b.Tokens, b.Micros, b.Grain, b.Burst, b.Initial, b.Lowest = r.int(), r.int(), r.int(), r.int(), r.int(), r.int()
	}
}
