package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

func TestReset(t *testing.T) {
	p := start(t, 0)
	got := ask(t, "POST", p.admin+"/v1/reset", `{"attributes":{"user":"a\r\n\u0000b","tenant":"\ud83d\ude00\\ud83d\ufffd"},"limit":"per-user"}`)
	if got.status != 204 || got.body != "" {
		t.Errorf("got %d %q, want 204 and no body", got.status, got.body)
	}
	want := limit.Attributes{{Name: "user", Value: "a\r\n\x00b"}, {Name: "tenant", Value: "😀\\ud83d\ufffd"}}
	if p.store.name != "per-user" || len(p.store.attributes) != 2 ||
		p.store.attributes[0] != want[0] || p.store.attributes[1] != want[1] {
		t.Errorf("asked to forget %q %q, want per-user %q", p.store.name, p.store.attributes, want)
	}
	if got := ask(t, "POST", p.admin+"/v1/reset", `{"limit":"everyone"}`); got.status != 204 || p.store.name != "everyone" {
		t.Errorf("without attributes got %d for %q, want 204 for everyone", got.status, p.store.name)
	}
}

func TestResetRefusesBody(t *testing.T) {
	const halfPair = `a string holds half of a surrogate pair: \ud800 to \udfff are valid in pairs only`
	var many string
	for i := range 65 {
		many += strings.Repeat(",", min(i, 1)) + `"` + strings.Repeat("a", i+1) + `":""`
	}
	p := start(t, 0)
	tests := []struct {
		name, body string
		status     int
		field      string
		detail     string
	}{
		{"empty", "", 400, "", "the body is not one JSON object"},
		{"no object", `"limit"`, 400, "", "the body is not one JSON object"},
		{"cut", `{"limit":"a"`, 400, "", "the body is not one JSON object"},
		{"two documents", `{"limit":"a"}{}`, 400, "", "the body is not one JSON object"},
		{"unknown field", `{"limit":"a","policy":"b"}`, 400, "policy", "unknown field; a reset has limit and attributes"},
		{"another case", `{"Limit":"a"}`, 400, "Limit", "unknown field; a reset has limit and attributes"},
		{"no limit", `{"attributes":{}}`, 400, "limit", "missing or empty; name the limit"},
		{"limit is no string", `{"limit":5}`, 400, "limit", "must be a string"},
		{"limit twice", `{"limit":"a","limit":"b"}`, 400, "limit", "given twice"},
		{"attributes are a list", `{"limit":"a","attributes":["secret"]}`, 400, "attributes", "must be an object of strings"},
		{"a number as value", `{"limit":"a","attributes":{"user":12345}}`, 400, "attributes.user", "must be a string"},
		{"null as value", `{"limit":"a","attributes":{"user":null}}`, 400, "attributes.user", "must be a string"},
		{"attribute twice", `{"limit":"a","attributes":{"user":"secret","user":"b"}}`, 400, "attributes.user", "given twice"},
		{"a broken byte", `{"limit":"a","attributes":{"user":"` + "\xff" + `"}}`, 400, "", "the body is not valid UTF-8"},
		{"half a pair", `{"limit":"a","attributes":{"user":"\ud83d"}}`, 400, "", halfPair},
		{"the other half", `{"limit":"a","attributes":{"user":"\ud83d\ud83d\uDE00"}}`, 400, "", halfPair},
		{"too many attributes", `{"limit":"a","attributes":{` + many + `}}`, 400, "attributes", "there may be 64 at most"},
		{"a long field", `{"` + strings.Repeat("f", 300) + `":1}`, 400, strings.Repeat("f", 200) + "…", "unknown field; a reset has limit and attributes"},
		{"too large", `{"limit":"a","attributes":{"user":"` + strings.Repeat("x", 64<<10) + `"}}`, 413, "", "a body may have 65536 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantProblem(t, ask(t, "POST", p.admin+"/v1/reset", tt.body), tt.status, tt.field, tt.detail)
		})
	}
	if p.store.calls != 0 {
		t.Errorf("the store was asked %d times, want never", p.store.calls)
	}
	if log := p.log.String(); log != "" {
		t.Errorf("a client's mistakes were logged: %s", log)
	}
}

// wantProblem compares a problem document with what it must say.
func wantProblem(t *testing.T, got answer, status int, field, detail string) {
	t.Helper()
	var p struct {
		Type, Title, Code, Detail, Field string
		Status                           int
	}
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatalf("%v in %q", err, got.body)
	}
	if field != "" && status == 400 {
		detail = field + ": " + detail
	}
	if got.status != status || p.Status != status || p.Field != field || p.Detail != detail || p.Type == "" || p.Title == "" || p.Code == "" {
		t.Errorf("got %d %s, want %d, field %q, detail %q, a type, a title and a code", got.status, got.body, status, field, detail)
	}
	if got := got.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("got Content-Type %q, want application/problem+json", got)
	}
}

func TestResetErrors(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		status int
		field  string
		detail string
		logged bool
	}{
		{"bad attributes", &limit.InvalidError{Field: "attributes.user", Reason: "missing or empty"}, 400, "attributes.user", "missing or empty", false},
		{"unknown limit", limit.ErrUnknownPolicy, 404, "limit", "there is no limit of this name", false},
		{"store away", errors.Join(limit.ErrUnavailable, errors.New("dial")), 503, "",
			"Redis cannot be reached or did not answer in time; the key may or may not be forgotten, and asking again is safe", true},
		{"store too slow", context.DeadlineExceeded, 503, "",
			"Redis cannot be reached or did not answer in time; the key may or may not be forgotten, and asking again is safe", true},
		{"anything else", errors.New("odd"), 500, "", "an error inside the sidecar; its log has the cause", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, 0)
			p.store.err = tt.err
			got := ask(t, "POST", p.admin+"/v1/reset", `{"limit":"a","attributes":{"user":"open-sesame"}}`)
			wantProblem(t, got, tt.status, tt.field, tt.detail)
			degraded := map[bool]string{true: "true"}[tt.status == 503]
			if header := got.header.Get("X-Tidegate-Degraded"); header != degraded || strings.Contains(got.body, `"degraded":true`) != (degraded != "") {
				t.Errorf("got X-Tidegate-Degraded %q, want %q, in the body too: %s", header, degraded, got.body)
			}
			if code := `"code":"unknown-policy"`; strings.Contains(got.body, code) != (tt.status == 404) {
				t.Errorf("got %s, want %s for an unknown limit, as on the data plane", got.body, code)
			}
			log := p.log.String()
			if (log != "") != tt.logged || strings.Contains(log+got.body, "open-sesame") {
				t.Errorf("logged %q, want a line: %t, and no attribute value in log or body", log, tt.logged)
			}
		})
	}
}

// TestResetClientGone pins that a client that hangs up is nobody's fault.
func TestResetClientGone(t *testing.T) {
	p := start(t, 0)
	p.store.entered = make(chan struct{})
	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		<-p.store.entered
		hangUp()
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.admin+"/v1/reset", strings.NewReader(`{"limit":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
		t.Fatal("got an answer, want none")
	}
	p.stop()
	<-p.stopped
	if log := p.log.String(); log != "" {
		t.Errorf("logged %s, want nothing", log)
	}
}

// TestForeignPages pins that a page in a browser on the same machine cannot reset a key.
func TestForeignPages(t *testing.T) {
	p := start(t, 0)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if got := ask(t, "POST", p.admin+"/v1/reset", `{"limit":"a"}`, header...); got.status != 403 {
			t.Errorf("with %q got %d, want 403", header, got.status)
		}
	}
	if p.store.calls != 0 {
		t.Errorf("the store was asked %d times, want never", p.store.calls)
	}
}
