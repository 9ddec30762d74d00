package httpapi

import (
	"time"

	"github.com/go-faster/jx"

	"github.com/tidegate/tidegate/internal/limit"
)

// writeDecision writes a decision without an Err as JSON.
func writeDecision(w *jx.Writer, d *limit.Decision) {
	w.RawStr(`{"allowed":`)
	w.Bool(d.Allowed)
	writeWait(w, d.Allowed, d.Never, d.RetryAfter)
	w.RawStr(`,"degraded":`)
	w.Bool(d.Degraded)
	w.RawStr(`,"tier":`)
	w.Str(d.Tier.String())
	w.RawStr(`,"limits":[`)
	for i := range d.Verdicts {
		if i > 0 {
			w.Comma()
		}
		writeVerdict(w, &d.Verdicts[i])
	}
	w.RawStr(`]}`)
}

func writeVerdict(w *jx.Writer, v *limit.Verdict) {
	w.RawStr(`{"name":`)
	w.Str(v.Limit.Name)
	w.RawStr(`,"allowed":`)
	w.Bool(v.Allowed)
	w.RawStr(`,"limit":`)
	w.Int64(v.Settings.Capacity())
	if v.Known {
		w.RawStr(`,"remaining":`)
		w.Int64(max(0, v.Remaining))
	}
	writeWait(w, v.Allowed, v.Never, v.RetryAfter)
	if v.Known {
		w.RawStr(`,"reset_after_ms":`)
		w.Int64(ceil(v.ResetAfter, time.Millisecond))
	}
	if v.Limit.Shadow {
		w.RawStr(`,"shadow":true`)
	}
	w.ObjEnd()
}

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
