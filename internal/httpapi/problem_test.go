package httpapi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestMethodsAndPaths(t *testing.T) {
	s := start(t, nil)
	const body = `{"limit":"per-user","key":"u"}`
	tests := []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/v1/check", 405, "POST"},
		{"HEAD", "/v1/check", 405, "POST"},
		{"OPTIONS", "/v1/check", 405, "POST"},
		{"PUT", "/v1/check", 405, "POST"},
		{"PATCH", "/v1/check", 405, "POST"},
		{"DELETE", "/v1/check", 405, "POST"},
		{"BREW", "/v1/check", 405, "POST"},
		{"post", "/v1/check", 405, "POST"},
		{"GET", "/v1/finish", 405, "POST"},
		{"HEAD", "/v1/finish", 405, "POST"},
		{"OPTIONS", "/v1/finish", 405, "POST"},
		{"PUT", "/v1/finish", 405, "POST"},
		{"GET", "/v1/renew", 405, "POST"},
		{"HEAD", "/v1/renew", 405, "POST"},
		{"OPTIONS", "/v1/renew", 405, "POST"},
		{"DELETE", "/v1/renew", 405, "POST"},
		{"POST", "/v1/finish/", 404, ""},
		{"POST", "/v1/Renew", 404, ""},
		{"POST", "/v1/status", 405, "GET, HEAD"},
		{"OPTIONS", "/v1/status?limit=per-user&key=u", 405, "GET, HEAD"},
		{"POST", "/", 404, ""},
		{"POST", "/v1/check/", 404, ""},
		{"POST", "/v1/checks", 404, ""},
		{"POST", "/V1/Check", 404, ""},
		{"POST", "//v1/check", 404, ""},
		{"POST", "/x/../v1/check", 404, ""},
		{"POST", "/v1/%63heck", 404, ""},
		{"POST", "/v1/check%3f", 404, ""},
		{"POST", "/v1/reset", 404, ""},
		{"GET", "/metrics", 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+tt.path, func(t *testing.T) {
			got := s.do(t, tt.method, tt.path, body)
			wantHeaders(t, got.header, map[string]string{"Allow": tt.allow, "Content-Type": "application/problem+json", "Server": ""})
			if tt.method == "HEAD" {
				if got.status != tt.status || got.body != "" {
					t.Errorf("got %s, want %d without a body", got, tt.status)
				}
				return
			}
			wantProblem(t, got, tt.status, map[int]string{404: "not-found", 405: "method-not-allowed"}[tt.status], "")
		})
	}
	if s.store.calls != 0 {
		t.Errorf("the store was asked %d times, want never", s.store.calls)
	}
}

func TestStoreErrors(t *testing.T) {
	const capacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	tests := []struct {
		err              error
		status           int
		code, kind, wait string
	}{
		{fmt.Errorf("remote: call: %w: broken pipe", limit.ErrUnavailable), 503, "temporary-reduced-capacity", capacity, "1"},
		{fmt.Errorf("remote: %w", limit.ErrWrongType), 503, "wrong-type", "about:blank", ""},
		{errors.New("remote: a bug"), 500, "internal", "about:blank", ""},
	}
	for _, tt := range tests {
		t.Run(tt.code, func(t *testing.T) {
			s := start(t, nil)
			s.store.err = tt.err
			for range 3 {
				got := s.check(t, `{"limit":"per-user","key":"secret-value"}`)
				wantProblem(t, got, tt.status, tt.code, "")
				degraded := "" // of the tiers, as the body says too
				if tt.status == 503 && tt.kind == capacity {
					degraded = "true"
				}
				wantHeaders(t, got.header, map[string]string{"Retry-After": tt.wait, "X-Should-Retry": "", "X-Tidegate-Degraded": degraded})
				if strings.Contains(got.body, `"degraded":true`) != (degraded != "") {
					t.Errorf("got %s", got.body)
				}
				if p := decode[problem](t, got.body); p.Type != tt.kind || strings.Contains(got.body, "remote") {
					t.Errorf("got type %q, want %q, without the cause; body %s", p.Type, tt.kind, got.body)
				}
			}
			wantProblem(t, s.do(t, "GET", "/v1/status?limit=per-user&user=secret-value", ""), tt.status, tt.code, "")
			got := s.check(t, `{"checks":[{"limit":"per-user","key":"u"},{"limit":"per-user"}]}`)
			decisions := decode[struct{ Decisions []problem }](t, got.body).Decisions
			if got.status != 200 || len(decisions) != 2 || decisions[0].Code != tt.code || decisions[1].Code != "invalid-request" {
				t.Errorf("checks: got %s", got)
			}
			log := s.log.String()
			if n := strings.Count(log, tt.err.Error()); n < 1 || n > 2 {
				t.Errorf("the cause is logged %d times, want once a minute:\n%s", n, log)
			}
			if strings.Contains(log, "secret-value") {
				t.Errorf("a value is in the log:\n%s", log)
			}
		})
	}
}

// One request's failure is its own: the others of a call get their answers.
func TestOneWrongKeyAmongChecks(t *testing.T) {
	s := start(t, nil)
	s.store.change = func(d *limit.Decision) {
		if d.Verdicts[0].Limit.Name == "gpt" {
			d.Reset()
			d.Err = limit.ErrWrongType
		}
	}
	got := s.check(t, `{"checks":[{"limit":"per-user","key":"u"},{"limit":"gpt","attributes":{"user":"u","model":"gpt-5"}},{"limit":"all"}]}`)
	want := `{"decisions":[{"allowed":true,"degraded":false,"tier":"redis","limits":[{"name":"per-user","allowed":true,"limit":3,"remaining":2,"reset_after_ms":1000}]},` +
		`{"type":"about:blank","title":"Service Unavailable","status":503,"code":"wrong-type","detail":"a key of this limit holds something else in the store; it was left alone"},` +
		`{"allowed":true,"degraded":false,"tier":"redis","limits":[{"name":"all","allowed":true,"limit":1000000,"remaining":999999,"reset_after_ms":1}]}]}`
	if got.status != 200 || got.body != want {
		t.Errorf("got %s\nwant 200 %s", got, want)
	}
}

func TestPanicIsOneRequests(t *testing.T) {
	s := start(t, nil)
	s.store.change = func(*limit.Decision) { panic("a bug") }
	wantProblem(t, s.check(t, `{"limit":"per-user","key":"secret-value"}`), 500, "internal", "")
	s.store.change = nil
	if got := s.check(t, `{"limit":"per-user","key":"u"}`); got.status != 200 {
		t.Errorf("after a panic: got %s", got)
	}
	if log := s.log.String(); !strings.Contains(log, "a bug") || strings.Contains(log, "secret-value") {
		t.Errorf("the log lacks the cause, or has a value:\n%s", log)
	}
}

// No refusal repeats a value of an attribute, in the answer or in the log.
func TestValuesStayPrivate(t *testing.T) {
	s := start(t, nil)
	for _, body := range []string{
		`{"policy":"chat","attributes":{"user":"secret-value"}}`,
		`{"policy":"chat","attributes":{"user":"secret-value","user":"secret-value"}}`,
		`{"limit":"per-user","key":"secret-value","cost":-1}`,
		`{"limit":"per-user","key":"secret-value"`,
		`{"limit":"per-user","key":"secret-value\ud800"}`,
		`{"limit":"pair","key":"secret-value"}`,
		`{"limit":"per-user","key":"secret-value","attributes":{"user":"secret-value"}}`,
		`{"limit":"per-user","key":"secret-value","cost":{"tokens":1}}`,
		`{"limit":"per-user","key":"secret-value","request_id":"` + strings.Repeat("secret-value", 22) + `"}`,
		`{"limit":"per-user","key":"secret-value","request_id":"secret-value","max_wait_ms":1}`,
		`{"limit":"per-user","key":"secret-value","ticket":"secret-value"}`,
	} {
		got := s.check(t, body)
		if got.status != 400 || strings.Contains(got.body, "secret-value") {
			t.Errorf("%s: got %s", body, got)
		}
	}
	if log := s.log.String(); strings.Contains(log, "secret-value") {
		t.Errorf("a value is in the log:\n%s", log)
	}
}
