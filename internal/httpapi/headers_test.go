package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
)

func xRateLimit(cfg *httpapi.Config) { cfg.XRateLimit = true }

func TestDecisionHeaders(t *testing.T) {
	type headers = map[string]string
	tests := []struct {
		name   string
		before int           // requests before
		wait   time.Duration // after those
		body   string
		want   headers
	}{
		{"allowed", 0, 0, `{"policy":"chat","attributes":{"user":"u","tenant":"t"}}`, headers{
			"RateLimit-Policy": `"per-user";q=3;w=3, "tokens";q=60000;w=60`, "RateLimit": `"per-user";r=2;t=1, "tokens";r=59500;t=1`,
			"Retry-After": "", "Retry-After-Ms": "", "X-Should-Retry": "", "X-Tidegate-Degraded": "",
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "1",
		}},
		{"denied", 3, 501 * time.Microsecond, `{"policy":"chat","attributes":{"user":"u","tenant":"t"}}`, headers{
			"RateLimit-Policy": `"per-user";q=3;w=3, "tokens";q=60000;w=60`, "RateLimit": `"per-user";r=0;t=1, "tokens";r=58500;t=2`,
			"Retry-After": "1", "Retry-After-Ms": "1000", "X-Should-Retry": "",
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3",
		}},
		{"the last microsecond", 1, 99_999 * time.Microsecond, `{"limit":"fast","key":"u"}`, headers{
			"RateLimit": `"fast";r=0;t=1`, "Retry-After": "1", "Retry-After-Ms": "1", "X-RateLimit-Reset": "1",
		}},
		{"a wait of an hour", 1, time.Microsecond, `{"limit":"hourly","key":"u"}`, headers{
			"RateLimit-Policy": `"hourly";q=1;w=3600`, "RateLimit": `"hourly";r=0;t=3600`,
			"Retry-After": "3600", "Retry-After-Ms": "3600000", "X-Should-Retry": "false",
		}},
		{"a wait of two minutes", 1, 58 * time.Minute, `{"limit":"hourly","key":"u"}`, headers{
			"Retry-After": "120", "Retry-After-Ms": "120000", "X-Should-Retry": "",
		}},
		{"never", 0, 0, `{"policy":"chat","attributes":{"user":"u","tenant":"t"},"cost":{"tokens":60001}}`, headers{
			"RateLimit-Policy": `"tokens";q=60000;w=60`, "RateLimit": "", "Retry-After": "", "Retry-After-Ms": "", "X-Should-Retry": "false",
			"X-RateLimit-Limit": "60000", "X-RateLimit-Remaining": "", "X-RateLimit-Reset": "",
		}},
		{"a limit of 0", 0, 0, `{"limit":"closed","key":"u"}`, headers{
			"RateLimit-Policy": `"closed";q=0`, "RateLimit": `"closed";r=0;t=0`, "Retry-After": "", "X-Should-Retry": "false",
			"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0",
		}},
		{"no limit", 0, 0, `{"policy":"gpt-only","attributes":{"user":"u","model":"other"}}`, headers{
			"RateLimit-Policy": "", "RateLimit": "", "X-RateLimit-Limit": "",
		}},
		{"the largest integer of a header", 0, 0, `{"limit":"most","key":"u","cost":0}`, headers{
			"RateLimit-Policy": `"most";q=999999999999999;w=1`, "RateLimit": `"most";r=999999999999999;t=0`,
			"X-RateLimit-Limit": "999999999999999", "X-RateLimit-Remaining": "999999999999999",
		}},
		{"larger ones are cut", 0, 0, `{"limit":"top","key":"u","cost":0}`, headers{
			"RateLimit-Policy": `"top";q=999999999999999;w=3`, "RateLimit": `"top";r=999999999999999;t=0`,
			"X-RateLimit-Limit": "9007199254740992", "X-RateLimit-Remaining": "9007199254740992",
		}},
		{"a day's quota above 2^31", 0, 0, `{"limit":"quota","key":"u"}`, headers{
			"RateLimit-Policy": `"quota";q=3000000000;w=86400`, "RateLimit": `"quota";r=2999999999;t=1`, "X-RateLimit-Remaining": "2999999999",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, xRateLimit)
			for range tt.before {
				if got := s.check(t, tt.body); got.status != 200 {
					t.Fatalf("before: got %s", got)
				}
			}
			s.store.advance(tt.wait)
			got := s.check(t, tt.body)
			tt.want["Cache-Control"] = "no-store"
			wantHeaders(t, got.header, tt.want)
			wantStructured(t, got.header)
		})
	}
}

// wantStructured checks both fields with a parser of structured fields.
func wantStructured(t *testing.T, h http.Header) {
	t.Helper()
	for field, parameters := range map[string]string{"RateLimit-Policy": "q w", "RateLimit": "r t"} {
		lines := h.Values(field)
		if len(lines) == 0 {
			continue
		}
		list, err := httpsfv.UnmarshalList(lines)
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %q is no list: %v", field, lines, err)
		}
		for _, member := range list {
			item, ok := member.(httpsfv.Item)
			if !ok {
				t.Errorf("%s: %v is no item", field, member)
				continue
			}
			if _, ok := item.Value.(string); !ok {
				t.Errorf("%s: %v is no string", field, item.Value)
			}
			for _, name := range item.Params.Names() {
				value, _ := item.Params.Get(name)
				if n, ok := value.(int64); !ok || n < 0 || !strings.Contains(parameters, name) {
					t.Errorf("%s: parameter %s=%v, want a whole number in one of %s", field, name, value, parameters)
				}
			}
		}
	}
}

// Around every edge no client is told to wait for nothing, and nothing is below zero.
func TestWaitsAreNeverZero(t *testing.T) {
	s := start(t, xRateLimit)
	denied := 0
	for i := range 3000 {
		s.store.advance(time.Duration(i%1000) * 100 * time.Microsecond)
		got := s.check(t, `{"limit":"fast","key":"u"}`)
		for _, name := range []string{"X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if n, err := strconv.Atoi(got.header.Get(name)); err != nil || n < 0 {
				t.Fatalf("%s: got %q", name, got.header.Get(name))
			}
		}
		if got.status != 429 {
			continue
		}
		denied++
		millis, err := strconv.Atoi(got.header.Get("retry-after-ms"))
		if err != nil || millis < 1 || millis > 100 || got.header.Get("Retry-After") != "1" {
			t.Fatalf("got Retry-After %q, retry-after-ms %q", got.header.Get("Retry-After"), got.header.Get("retry-after-ms"))
		}
		wantStructured(t, got.header)
	}
	if denied < 1000 {
		t.Errorf("only %d were denied", denied)
	}
}

// X-RateLimit-* are of the denying limit with the longest wait, else of the one with the least left.
func TestXRateLimitPicksOneLimit(t *testing.T) {
	const second = time.Second
	tests := []struct {
		name   string
		change func(a, b *limit.Verdict) // of per-user (3) and tokens (60000)
		want   string
	}{
		{"the least left", func(a, b *limit.Verdict) { a.Remaining, b.Remaining = 1, 30000 }, "3"},
		{"the least left is the other", func(a, b *limit.Verdict) { a.Remaining, b.Remaining = 1, 10000 }, "60000"},
		{"the denying one", func(a, b *limit.Verdict) { a.Remaining, b.Allowed, b.RetryAfter = 0, false, second }, "60000"},
		{"the longest wait", func(a, b *limit.Verdict) {
			a.Allowed, a.RetryAfter, b.Allowed, b.RetryAfter = false, second, false, 2*second
		}, "60000"},
		{"never is longest", func(a, b *limit.Verdict) {
			a.Allowed, a.Never, b.Allowed, b.RetryAfter = false, true, false, second
		}, "3"},
		{"an unknown rest is no rest of 0", func(a, _ *limit.Verdict) { a.Known, a.Remaining = false, 0 }, "60000"},
		{"a debt is less than nothing left, but no less than 0", func(a, b *limit.Verdict) { a.Remaining, b.Remaining = 0, -5 }, "3"},
		{"all unknown", func(a, b *limit.Verdict) { a.Known, b.Known = false, false }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, xRateLimit)
			s.store.change = func(d *limit.Decision) { tt.change(&d.Verdicts[0], &d.Verdicts[1]) }
			got := s.check(t, `{"policy":"chat","attributes":{"user":"u","tenant":"t"}}`)
			wantHeaders(t, got.header, map[string]string{"X-RateLimit-Limit": tt.want})
		})
	}
}

func TestXRateLimitIsOffByDefault(t *testing.T) {
	got := start(t, nil).check(t, `{"limit":"per-user","key":"u"}`)
	wantHeaders(t, got.header, map[string]string{"X-RateLimit-Limit": "", "X-RateLimit-Remaining": "", "X-RateLimit-Reset": ""})
}
