package httpapi

import (
	"time"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
)

// writeDecision writes a decision without an Err as JSON. One about the status has no ticket, but
// says who holds slots and what waits.
func writeDecision(w *jx.Writer, d *limit.Decision, status bool) {
	w.RawStr(`{"allowed":`)
	w.Bool(d.Allowed)
	writeWait(w, d.Allowed, d.Never, d.RetryAfter)
	w.RawStr(`,"degraded":`)
	w.Bool(d.Degraded)
	w.RawStr(`,"tier":`)
	w.Str(d.Tier.String())
	if d.Ticket != "" && !status {
		w.RawStr(`,"ticket":`)
		w.Str(d.Ticket)
	}
	w.RawStr(`,"limits":[`)
	lists := status && len(d.Lists) == len(d.Verdicts)
	for i := range d.Verdicts {
		if i > 0 {
			w.Comma()
		}
		v := &d.Verdicts[i]
		writeVerdict(w, v)
		if lists && v.Known {
			writeList(w, v.Settings.Algorithm, d.Lists[i])
		}
		w.ObjEnd()
	}
	w.RawStr(`]}`)
}

// writeVerdict writes a limit's entry but for its closing brace.
func writeVerdict(w *jx.Writer, v *limit.Verdict) {
	w.RawStr(`{"name":`)
	w.Str(v.Limit.Name)
	w.RawStr(`,"allowed":`)
	w.Bool(v.Allowed)
	w.RawStr(`,"limit":`)
	w.Int64(v.Settings.Capacity())
	if v.Known {
		writeRemaining(w, v.Remaining)
	}
	writeWait(w, v.Allowed, v.Never, v.RetryAfter)
	if v.Known {
		w.RawStr(`,"reset_after_ms":`)
		w.Int64(ceil(v.ResetAfter, time.Millisecond))
	}
	if v.Limit.Shadow {
		w.RawStr(`,"shadow":true`)
	}
}

// writeRemaining writes what is left, which is never below 0, and what is missing beyond that: what a
// settlement has charged above the limit, or what was used before the limit was lowered.
func writeRemaining(w *jx.Writer, left int64) {
	w.RawStr(`,"remaining":`)
	w.Int64(max(0, left))
	if left < 0 {
		w.RawStr(`,"debt":`)
		w.Int64(-left)
	}
}

// writeList writes who holds slots, or what waits, oldest first; nothing for other algorithms.
func writeList(w *jx.Writer, a limit.Algorithm, listed []limit.Listed) {
	var name, first string
	switch a {
	case limit.ConcurrencyAlgorithm:
		name, first = `,"holders":[`, `{"age_ms":`
	case limit.LeakyBucketLogAlgorithm:
		name, first = `,"waiting":[`, `{"cost":`
	default:
		return
	}
	w.RawStr(name)
	for i := range listed {
		if i > 0 {
			w.Comma()
		}
		l, due := &listed[i], ceil(micros(listed[i].Due), time.Millisecond)
		w.RawStr(first)
		if a == limit.ConcurrencyAlgorithm {
			w.Int64(max(0, micros(l.Age).Milliseconds())) // rounded down
			w.RawStr(`,"expires_in_ms":`)
		} else {
			w.Int64(l.Cost)
			w.RawStr(`,"due_in_ms":`)
		}
		w.Int64(due)
		w.ObjEnd()
	}
	w.ArrEnd()
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// writeWait writes what a denied client may hope for.
func writeWait(w *jx.Writer, allowed, never bool, wait time.Duration) {
	switch {
	case never:
		w.RawStr(`,"never":true`)
	case !allowed:
		w.RawStr(`,"retry_after_ms":`)
		w.Int64(atLeastOne(wait, time.Millisecond))
	}
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
