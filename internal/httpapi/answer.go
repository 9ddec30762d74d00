package httpapi

import (
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// appendDecision appends a decision without an Err as JSON. One about the status has no ticket, but
// says who holds slots and what waits.
func appendDecision(b []byte, d *limit.Decision, status bool) []byte {
	b = appendBool(b, `{"allowed":`, d.Allowed)
	b = appendWait(b, d.Allowed, d.Never, d.RetryAfter)
	b = appendBool(b, `,"degraded":`, d.Degraded)
	b = appendText(b, `,"tier":`, d.Tier.String())
	if d.Ticket != "" && !status {
		b = appendText(b, `,"ticket":`, d.Ticket)
	}
	b = append(b, `,"limits":[`...)
	lists := status && len(d.Lists) == len(d.Verdicts)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		b = appendVerdict(b, v)
		if lists && v.Known {
			b = appendList(b, v.Settings.Algorithm, d.Lists[i])
		}
		b = append(b, "},"...)
	}
	return append(withoutComma(b), `]}`...)
}

// withoutComma takes the comma off that follows the last element of a list.
func withoutComma(b []byte) []byte {
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return b
}

func appendBool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(append(b, name...), value)
}

func appendInt(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(b, name...), value, 10)
}

// appendText appends a text in which nothing needs an escape, as in the names of limits and in tickets.
func appendText(b []byte, name, text string) []byte {
	b = append(b, name...)
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// appendVerdict appends a limit's entry but for its closing brace.
func appendVerdict(b []byte, v *limit.Verdict) []byte {
	b = appendText(b, `{"name":`, v.Limit.Name)
	b = appendBool(b, `,"allowed":`, v.Allowed)
	b = appendInt(b, `,"limit":`, v.Settings.Capacity())
	if v.Known {
		b = appendRemaining(b, v.Remaining)
	}
	b = appendWait(b, v.Allowed, v.Never, v.RetryAfter)
	if v.Known {
		b = appendInt(b, `,"reset_after_ms":`, ceil(v.ResetAfter, time.Millisecond))
	}
	if v.Limit.Shadow {
		b = append(b, `,"shadow":true`...)
	}
	return b
}

// appendRemaining appends what is left, which is never below 0, and what is missing beyond that: what a
// settlement has charged above the limit, or what was used before the limit was lowered.
func appendRemaining(b []byte, left int64) []byte {
	b = appendInt(b, `,"remaining":`, max(0, left))
	if left < 0 {
		b = appendInt(b, `,"debt":`, -left)
	}
	return b
}

// appendList appends who holds slots, or what waits, oldest first; nothing for other algorithms.
func appendList(b []byte, a limit.Algorithm, listed []limit.Listed) []byte {
	switch a {
	case limit.ConcurrencyAlgorithm:
		b = append(b, `,"holders":[`...)
		for i := range listed {
			b = appendInt(b, `{"age_ms":`, max(0, micros(listed[i].Age).Milliseconds())) // rounded down
			b = appendInt(b, `,"expires_in_ms":`, ceil(micros(listed[i].Due), time.Millisecond))
			b = append(b, "},"...)
		}
	case limit.LeakyBucketLogAlgorithm:
		b = append(b, `,"waiting":[`...)
		for i := range listed {
			b = appendInt(b, `{"cost":`, listed[i].Cost)
			b = appendInt(b, `,"due_in_ms":`, ceil(micros(listed[i].Due), time.Millisecond))
			b = append(b, "},"...)
		}
	default:
		return b
	}
	return append(withoutComma(b), ']')
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// appendWait appends what a denied client may hope for.
func appendWait(b []byte, allowed, never bool, wait time.Duration) []byte {
	switch {
	case never:
		return append(b, `,"never":true`...)
	case !allowed:
		return appendInt(b, `,"retry_after_ms":`, atLeastOne(wait, time.Millisecond))
	}
	return b
}

// ceil returns d in units, rounded up; a negative d is 0.
func ceil(d, unit time.Duration) int64 {
	whole := d / unit
	if d%unit > 0 {
		whole++
	}
	return max(0, int64(whole))
}

// atLeastOne returns d in units, rounded up, at least 1: nobody is told to wait for nothing.
func atLeastOne(d, unit time.Duration) int64 { return max(1, ceil(d, unit)) }
