package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
)

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestCheckAnswers(t *testing.T) {
	const (
		userLeft2  = `{"name":"per-user","allowed":true,"limit":3,"remaining":2,"reset_after_ms":1000}`
		tokensLeft = `{"name":"tokens","allowed":true,"limit":60000,"remaining":58800,"reset_after_ms":1200}`
	)
	tests := []struct {
		name   string
		body   string
		status int
		want   string
	}{
		{"policy", `{"policy":"chat","attributes":{"user":"u","tenant":"t"},"cost":{"requests":1,"tokens":1200}}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 + `,` + tokensLeft + `]}`},
		{"no cost: one request, the default of other units", `{"policy":"chat","attributes":{"user":"u","tenant":"t"}}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 +
				`,{"name":"tokens","allowed":true,"limit":60000,"remaining":59500,"reset_after_ms":500}]}`},
		{"limit and key", `{"limit":"per-user","key":"u"}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 + `]}`},
		{"limit and attributes", `{"limit":"per-user","attributes":{"user":"u"},"cost":1}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 + `]}`},
		{"a number is in the limit's own unit", `{"limit":"tokens","key":"t","cost":1200}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + tokensLeft + `]}`},
		{"a number is requests in a policy", `{"policy":"chat","attributes":{"user":"u","tenant":"t"},"cost":3}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[{"name":"per-user","allowed":true,"limit":3,"remaining":0,"reset_after_ms":3000},` +
				`{"name":"tokens","allowed":true,"limit":60000,"remaining":59500,"reset_after_ms":500}]}`},
		{"cost 0 asks only", `{"limit":"per-user","key":"u","cost":0}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[{"name":"per-user","allowed":true,"limit":3,"remaining":3,"reset_after_ms":0}]}`},
		{"no limit applies", `{"policy":"gpt-only","attributes":{"user":"u","model":"other"}}`, 200,
			`{"allowed":true,"degraded":false,"tier":"local","limits":[]}`},
		{"never", `{"limit":"per-user","key":"u","cost":4}`, 429,
			`{"allowed":false,"never":true,"degraded":false,"tier":"local","limits":[{"name":"per-user","allowed":false,"limit":3,"never":true}]}`},
		{"a limit of 0", `{"limit":"closed","key":"u"}`, 429,
			`{"allowed":false,"never":true,"degraded":false,"tier":"local","limits":[{"name":"closed","allowed":false,"limit":0,"remaining":0,"never":true,"reset_after_ms":0}]}`},
		{"a ticket and a wait, but switched off", `{"limit":"per-user","key":"u","ticket":false,"max_wait_ms":0}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 + `]}`},
		{"white space", " {\n\"limit\" :\t\"per-user\" , \"key\" : \"u\" }\r\n", 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 + `]}`},
		{"an escaped name", `{"limi\u0074":"per\u002duser","attributes":{"us\u0065r":"u"}}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[` + userLeft2 + `]}`},
		{"empty objects", `{"limit":"all","attributes":{},"cost":{}}`, 200,
			`{"allowed":true,"degraded":false,"tier":"redis","limits":[{"name":"all","allowed":true,"limit":1000000,"remaining":999999,"reset_after_ms":1}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, nil)
			got := s.check(t, tt.body)
			if got.status != tt.status || got.body != tt.want {
				t.Errorf("got %s\nwant %d %s", got, tt.status, tt.want)
			}
			wantHeaders(t, got.header, map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "Server": ""})
		})
	}
}

func TestCheckDenies(t *testing.T) {
	s := start(t, nil)
	const ask = `{"policy":"chat","attributes":{"user":"u","tenant":"t"}}`
	for range 3 {
		s.check(t, ask)
	}
	s.store.advance(500*time.Microsecond + time.Microsecond)
	got := s.check(t, ask)
	want := `{"allowed":false,"retry_after_ms":1000,"degraded":false,"tier":"redis","limits":[` +
		`{"name":"per-user","allowed":false,"limit":3,"remaining":0,"retry_after_ms":1000,"reset_after_ms":3000},` +
		`{"name":"tokens","allowed":true,"limit":60000,"remaining":58500,"reset_after_ms":1500}]}`
	if got.status != 429 || got.body != want {
		t.Errorf("got %s\nwant 429 %s", got, want)
	}
	wantHeaders(t, got.header, map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"})
}

func TestCheckShadow(t *testing.T) {
	s := start(t, nil)
	const ask = `{"policy":"shadowed","attributes":{"user":"u"}}`
	s.check(t, ask)
	got := s.check(t, ask)
	want := `{"allowed":true,"degraded":false,"tier":"redis","limits":[` +
		`{"name":"per-user","allowed":true,"limit":3,"remaining":1,"reset_after_ms":2000},` +
		`{"name":"watch","allowed":false,"limit":1,"remaining":0,"retry_after_ms":3600000,"reset_after_ms":3600000,"shadow":true}]}`
	if got.status != 200 || got.body != want {
		t.Errorf("got %s\nwant 200 %s", got, want)
	}
	wantHeaders(t, got.header, map[string]string{
		"RateLimit-Policy": `"per-user";q=3;w=3`, "RateLimit": `"per-user";r=1;t=2`, "Retry-After": "", "X-RateLimit-Limit": "",
	})
}

// A debt is told as one, but in the headers, which know none; what is not known is not told; and a
// fallback says so.
func TestCheckTellsOnlyWhatIsTrue(t *testing.T) {
	s := start(t, nil)
	s.store.change = func(d *limit.Decision) {
		d.Degraded, d.Tier = true, limit.TierFallback
		d.Verdicts[0].Remaining = -20
		d.Verdicts[1].Known = false
	}
	got := s.check(t, `{"policy":"chat","attributes":{"user":"u","tenant":"t"}}`)
	want := `{"allowed":true,"degraded":true,"tier":"fallback","limits":[` +
		`{"name":"per-user","allowed":true,"limit":3,"remaining":0,"debt":20,"reset_after_ms":1000},{"name":"tokens","allowed":true,"limit":60000}]}`
	if got.status != 200 || got.body != want {
		t.Errorf("got %s\nwant 200 %s", got, want)
	}
	wantHeaders(t, got.header, map[string]string{
		"X-Tidegate-Degraded": "true", "RateLimit-Policy": `"per-user";q=3;w=3, "tokens";q=60000;w=60`, "RateLimit": `"per-user";r=0;t=1`,
	})
}

// Whatever a store says, nobody who is denied is told to wait for nothing.
func TestDeniedWithoutAWait(t *testing.T) {
	s := start(t, nil)
	s.store.change = func(d *limit.Decision) { d.Verdicts[0].Allowed = false }
	got := s.check(t, `{"limit":"per-user","key":"u"}`)
	want := `{"allowed":false,"retry_after_ms":1,"degraded":false,"tier":"redis","limits":[` +
		`{"name":"per-user","allowed":false,"limit":3,"remaining":2,"retry_after_ms":1,"reset_after_ms":1000}]}`
	if got.status != 429 || got.body != want {
		t.Errorf("got %s\nwant 429 %s", got, want)
	}
	wantHeaders(t, got.header, map[string]string{"Retry-After": "1", "Retry-After-Ms": "1"})
}

// Every valid string is a key of its own, byte for byte, and leaves the connection usable.
func TestKeysAreExact(t *testing.T) {
	s := start(t, nil)
	client := unixClient(t, s.unix)
	keys := []string{
		"u", "U", " u", "u ", "a\r\nb", "a\nb", "a\x00b", "\x00", "\x7f", "\U0001F600", "Å", "A\u030a", "\ufffd", `"`, `\`, "%41", "A",
		"a:b", "{u}", "a/b", strings.Repeat("k", 1000) + "1", strings.Repeat("k", 1000) + "2", strings.Repeat("é", 25_000),
	}
	for _, key := range keys {
		body, err := json.Marshal(map[string]string{"limit": "per-user", "key": key})
		if err != nil {
			t.Fatal(err)
		}
		got := do(t, client, "POST", "http://tidegate/v1/check", string(body))
		if got.status != 200 || !strings.Contains(got.body, `"remaining":2,`) {
			t.Errorf("key %.20q: got %s, want a fresh bucket", key, got)
		}
	}
	if got, want := len(s.store.states), len(keys); got != want {
		t.Errorf("got %d buckets, want %d", got, want)
	}
}

func TestChecks(t *testing.T) {
	s := start(t, nil)
	got := s.check(t, `{"checks":[
		{"limit":"per-user","key":"u","cost":3},
		{"limit":"per-user","key":"u"},
		{"limit":"per-user","key":"\ud800"},
		{"limit":"nobody","key":"u"},
		{"limit":"per-user","key":7},
		{"limit":"per-user","key":"v"},
		[],
		{"checks":[]},
		{"limit":"per-user","key":"w","polcy":"x"},
		{"policy":"chat","attributes":{"user":"x"}},
		{"limit":"per-user","key":"x","cost":1}]}`)
	if got.status != 200 {
		t.Fatalf("got %s", got)
	}
	wantHeaders(t, got.header, map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "RateLimit": "", "Retry-After": ""})
	type either struct {
		problem
		Allowed *bool
		Limits  []struct{ Remaining int }
	}
	var lines []string
	for _, d := range decode[struct{ Decisions []either }](t, got.body).Decisions {
		if d.Allowed != nil {
			lines = append(lines, fmt.Sprint(*d.Allowed, d.Limits[0].Remaining))
		} else {
			lines = append(lines, fmt.Sprintf("%d %s %s", d.Status, d.Code, d.Field))
		}
	}
	want := []string{
		"true 0", "false 0", "400 invalid-request ", "404 unknown-policy ", "400 invalid-request key", "true 2", "400 invalid-request ",
		"400 invalid-request checks", "400 invalid-request polcy", "400 invalid-request attributes.tenant", "true 2",
	}
	if g, w := strings.Join(lines, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	if s.store.calls != 1 || s.store.asked != 4 {
		t.Errorf("got %d calls with %d requests, want 1 with 4", s.store.calls, s.store.asked)
	}
}

func TestHundredChecks(t *testing.T) {
	s := start(t, nil)
	body := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"limit":"all"},`, 100), ",") + `]}`
	for range 2 { // the second time in memory that was used before
		got := s.check(t, body)
		decisions := decode[struct{ Decisions []json.RawMessage }](t, got.body).Decisions
		if got.status != 200 || len(decisions) != 100 || strings.Contains(got.body, "status") {
			t.Errorf("got %d decisions: %s", len(decisions), got)
		}
	}
	if s.store.calls != 2 {
		t.Errorf("got %d calls, want 2", s.store.calls)
	}
}

// Nothing of one request shows in the next one that uses its memory. Many rounds, for nobody
// promises that it does.
func TestRequestsAreSeparate(t *testing.T) {
	store := newStore()
	server := httpapi.New(httpapi.Config{Limiter: newLimiter(t, store)})
	var rc fasthttp.RequestCtx
	ask := func(method, target, body string) string {
		rc.Request.Reset()
		rc.Response.Reset()
		rc.Request.Header.SetMethod(method)
		rc.Request.SetRequestURI(target)
		rc.Request.SetBodyString(body)
		server.Serve(t.Context(), &rc)
		return fmt.Sprint(rc.Response.StatusCode(), " ", string(rc.Response.Body()))
	}
	for round := range 50 {
		// Each of these leaves something behind that the next one must not see.
		ask("POST", "/v1/check", fmt.Sprintf(`{"policy":"chat","attributes":{"user":"a%d","tenant":"t"},"cost":{"tokens":7}}`, round))
		if got := ask("POST", "/v1/check", `{"policy":"chat"}`); !strings.HasPrefix(got, "400 ") {
			t.Fatalf("attributes of the last request: %s", got)
		}
		ask("GET", fmt.Sprintf("/v1/status?limit=per-user&key=b%d", round), "")
		if got := ask("POST", "/v1/check", fmt.Sprintf(`{"limit":"per-user","key":"b%d"}`, round)); !strings.Contains(got, `"remaining":2,`) {
			t.Fatalf("after a status: %s", got)
		}
		ask("POST", "/v1/check", `{"checks":[{"limit":"all","cost":2},{"limit":"per-user","key":"c","cost":0}]}`)
		if got := ask("POST", "/v1/check", `{"limit":"per-user"}`); !strings.HasPrefix(got, "400 ") {
			t.Fatalf("the key of a check before: %s", got)
		}
		if got := ask("POST", "/v1/check", fmt.Sprintf(`{"limit":"per-user","key":"d%d"}`, round)); !strings.Contains(got, `"remaining":2,`) {
			t.Fatalf("the cost of a check before: %s", got)
		}
	}
}
