package httpapi

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/problem"
)

const (
	// maxInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
	maxInteger = 999_999_999_999_999

	// patience is the wait above which a client is told not to retry by itself: clients that
	// obey Retry-After give up above two minutes anyway.
	patience = 2 * time.Minute
)

// The names and values of headers, as bytes once and for all.
var (
	headerCacheControl = []byte("Cache-Control")
	headerDegraded     = []byte("X-Tidegate-Degraded")
	headerPolicy       = []byte("RateLimit-Policy")
	headerRate         = []byte("RateLimit")
	headerRetry        = []byte("Retry-After")
	headerRetryMillis  = []byte("retry-after-ms")
	headerShouldRetry  = []byte("x-should-retry")
	headerXLimit       = []byte("X-RateLimit-Limit")
	headerXRemaining   = []byte("X-RateLimit-Remaining")
	headerXReset       = []byte("X-RateLimit-Reset")
	headerAllow        = []byte("Allow")

	valueNoStore = []byte("no-store")
	valueTrue    = []byte("true")
	valueFalse   = []byte("false")
	valueJSON    = []byte("application/json")
	valueProblem = []byte(problem.ContentType)
)

// setDecisionHeaders sets every header of a decision but those of a denial.
func (s *Server) setDecisionHeaders(h *fasthttp.ResponseHeader, scratch []byte, d *limit.Decision) []byte {
	h.SetContentTypeBytes(valueJSON)
	h.SetCanonical(headerCacheControl, valueNoStore)
	if d.Degraded {
		h.SetCanonical(headerDegraded, valueTrue)
	}
	scratch = setRateLimit(h, scratch, d)
	if s.cfg.XRateLimit {
		scratch = setXRateLimit(h, scratch, d)
	}
	return scratch
}

// setDenialHeaders sets what a denied client needs to know of its next attempt.
func setDenialHeaders(h *fasthttp.ResponseHeader, scratch []byte, d *limit.Decision) []byte {
	if !d.Never {
		scratch = setInt(h, headerRetry, scratch, atLeastOne(d.RetryAfter, time.Second))
		scratch = setInt(h, headerRetryMillis, scratch, atLeastOne(d.RetryAfter, time.Millisecond))
	}
	if d.Never || d.RetryAfter > patience {
		h.SetCanonical(headerShouldRetry, valueFalse)
	}
	return scratch
}

// setRateLimit writes both fields of draft-ietf-httpapi-ratelimit-headers-11 as structured lists. Shadow limits are not the client's business;
// a limit of which the rest is unknown stands in the policy alone.
func setRateLimit(h *fasthttp.ResponseHeader, scratch []byte, d *limit.Decision) []byte {
	b := scratch[:0]
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; !v.Limit.Shadow {
			b = appendName(b, v)
			b = appendParameter(b, ";q=", v.Settings.Capacity())
			if window := v.Settings.Span(); window > 0 {
				b = appendParameter(b, ";w=", atLeastOne(window, time.Second))
			}
		}
	}
	if len(b) > 0 {
		h.SetCanonical(headerPolicy, b)
	}
	b = b[:0]
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; !v.Limit.Shadow && v.Known {
			wait := v.ResetAfter
			if !v.Allowed && !v.Never {
				wait = v.RetryAfter
			}
			b = appendName(b, v)
			b = appendParameter(b, ";r=", v.Remaining)
			b = appendParameter(b, ";t=", ceil(wait, time.Second))
		}
	}
	if len(b) > 0 {
		h.SetCanonical(headerRate, b)
	}
	return b
}

// appendName appends the beginning of a list's item. A limit's name needs no escape.
func appendName(b []byte, v *limit.Verdict) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, v.Limit.Name...)
	return append(b, '"')
}

func appendParameter(b []byte, name string, value int64) []byte {
	b = append(b, name...)
	return strconv.AppendInt(b, min(max(0, value), maxInteger), 10)
}

// setXRateLimit sets the older headers for one limit: the denying one with the longest wait, else
// the one with the least left of its capacity.
func setXRateLimit(h *fasthttp.ResponseHeader, scratch []byte, d *limit.Decision) []byte {
	v := tightest(d)
	if v == nil {
		return scratch
	}
	scratch = setInt(h, headerXLimit, scratch, v.Settings.Capacity())
	if v.Known {
		scratch = setInt(h, headerXRemaining, scratch, max(0, v.Remaining))
		scratch = setInt(h, headerXReset, scratch, ceil(v.ResetAfter, time.Second))
	}
	return scratch
}

// tightest returns the verdict that the client should look at, or nil when there is none.
func tightest(d *limit.Decision) *limit.Verdict {
	var found *limit.Verdict
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch {
		case v.Limit.Shadow || v.Allowed && !v.Known:
		case found == nil, tighter(v, found):
			found = v
		}
	}
	return found
}

func tighter(a, b *limit.Verdict) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.Allowed:
		return share(a) < share(b)
	case a.Never != b.Never:
		return a.Never
	default:
		return a.RetryAfter > b.RetryAfter
	}
}

// share returns how much of its capacity a limit has left.
func share(v *limit.Verdict) float64 {
	return float64(max(0, v.Remaining)) / float64(max(1, v.Settings.Capacity()))
}

func setInt(h *fasthttp.ResponseHeader, name, scratch []byte, value int64) []byte {
	scratch = strconv.AppendInt(scratch[:0], value, 10)
	h.SetCanonical(name, scratch)
	return scratch
}
