package httpapi_test

import (
	"strings"
	"testing"
)

func TestStatus(t *testing.T) {
	s := start(t, nil)
	for range 3 {
		s.check(t, `{"policy":"chat","attributes":{"user":"a b+ü","tenant":"t"}}`)
	}
	tests := []struct {
		name, query string
		want        string
	}{
		{"policy", "policy=chat&user=a+b%2B%c3%BC&tenant=t", `{"allowed":true,"degraded":false,"tier":"redis","limits":[` +
			`{"name":"per-user","allowed":true,"limit":3,"remaining":0,"reset_after_ms":3000},` +
			`{"name":"tokens","allowed":true,"limit":60000,"remaining":58500,"reset_after_ms":1500}]}`},
		{"limit and key", "limit=per-user&key=a%20b%2Bü", `{"allowed":true,"degraded":false,"tier":"redis","limits":[` +
			`{"name":"per-user","allowed":true,"limit":3,"remaining":0,"reset_after_ms":3000}]}`},
		{"a fresh key", "&limit=per-user&&user=v&", `{"allowed":true,"degraded":false,"tier":"redis","limits":[` +
			`{"name":"per-user","allowed":true,"limit":3,"remaining":3,"reset_after_ms":0}]}`},
		{"a limit of 0", "limit=closed&key=u", `{"allowed":true,"degraded":false,"tier":"redis","limits":[` +
			`{"name":"closed","allowed":true,"limit":0,"remaining":0,"reset_after_ms":0}]}`},
		{"more attributes than needed", "limit=per-user&user=v&cost=7&requests=1", `{"allowed":true,"degraded":false,"tier":"redis","limits":[` +
			`{"name":"per-user","allowed":true,"limit":3,"remaining":3,"reset_after_ms":0}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // the first one charges nothing
				got := s.do(t, "GET", "/v1/status?"+tt.query, "")
				if got.status != 200 || got.body != tt.want {
					t.Errorf("got %s\nwant 200 %s", got, tt.want)
				}
				wantHeaders(t, got.header, map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "Retry-After": ""})
			}
		})
	}
	got := s.do(t, "GET", "/v1/status?limit=per-user&user=v", "")
	wantHeaders(t, got.header, map[string]string{"RateLimit-Policy": `"per-user";q=3;w=3`, "RateLimit": `"per-user";r=3;t=0`})
	if got := s.do(t, "HEAD", "/v1/status?limit=per-user&user=v", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: got %s", got)
	}
}

func TestStatusRefuses(t *testing.T) {
	tests := []struct {
		name, query string
		status      int
		code, field string
	}{
		{"nothing", "", 400, "invalid-request", "policy"},
		{"both", "policy=chat&limit=per-user", 400, "invalid-request", "limit"},
		{"a parameter twice", "policy=chat&policy=chat", 400, "invalid-request", "policy"},
		{"an attribute twice", "policy=chat&user=u&user=v", 400, "invalid-request", "attributes.user"},
		{"an attribute twice, once escaped", "policy=chat&user=u&us%65r=v", 400, "invalid-request", "attributes.user"},
		{"a missing attribute", "policy=chat&user=u", 400, "invalid-request", "attributes.tenant"},
		{"an empty attribute", "limit=per-user&user=", 400, "invalid-request", "attributes.user"},
		{"an empty key", "limit=per-user&key=", 400, "invalid-request", "key"},
		{"an empty policy", "policy=", 400, "invalid-request", "policy"},
		{"no value", "limit=per-user&user", 400, "invalid-request", "user"},
		{"no name", "limit=per-user&=u", 400, "invalid-request", ""},
		{"half an escape", "limit=per-user&user=%4", 400, "invalid-request", "user"},
		{"an escape without digits", "limit=per-user&user=%zz", 400, "invalid-request", "user"},
		{"a lone percent sign", "limit=per-user&user=100%", 400, "invalid-request", "user"},
		{"not UTF-8", "limit=per-user&user=%ff", 400, "invalid-request", "user"},
		{"a name that is not UTF-8", "limit=per-user&%ff=u", 400, "invalid-request", ""},
		{"unknown policy", "policy=nobody&user=u", 404, "unknown-policy", ""},
		{"unknown limit", "limit=nobody&user=u", 404, "unknown-policy", ""},
	}
	s := start(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantProblem(t, s.do(t, "GET", "/v1/status?"+tt.query, ""), tt.status, tt.code, tt.field)
		})
	}
	var names []string
	for i := range 65 {
		names = append(names, "a"+strings.Repeat("b", i)+"=1")
	}
	wantProblem(t, s.do(t, "GET", "/v1/status?policy=chat&"+strings.Join(names, "&"), ""), 400, "invalid-request", "attributes")
	if s.store.calls != 0 {
		t.Errorf("the store was asked %d times, want never", s.store.calls)
	}
}
