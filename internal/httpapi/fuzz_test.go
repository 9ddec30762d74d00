package httpapi_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
)

// FuzzCheckBody holds the parser against encoding/json: whatever it accepts, both read alike. And
// no body makes a status that is not the client's or the limiter's.
func FuzzCheckBody(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"limit":"per-user","key":"u"}`, `{"policy":"chat","attributes":{"user":"u","tenant":"t"},"cost":{"tokens":1200}}`,
		`{"limit":"per-user","attributes":{"us\u0065r":"\ud83d\ude00\u0000\r\n"},"cost":9007199254740992}`,
		`{"checks":[{"limit":"all"},{"limit":"per-user","key":"\ud800"},7,{"checks":[]}]}`, `{"limit":"per-user","key":"\\\ud800\\"}`,
		`{"limit":"all","cost":1e3}`, `{"limit":"all","ticket":false,"max_wait_ms":0}`, "{\"limit\":\"all\",\"key\":\"\xff\"}",
		`{"limit":"all","ticket":true,"request_id":"r\u00e9"}`, `{"limit":"all","request_id":""}`, `{"limit":"all","request_id":null}`,
		`{"limit":"all","max_wait_ms":600000}`, `{"limit":"all","max_wait_ms":600001}`, `{"checks":[{"limit":"all","max_wait_ms":1},{"limit":"all","ticket":true}]}`,
		`{"limit":"all","cost":-0}`, ` { "limit" : "all" , "cost" : { } } `, `{"limit":"all"}}`, `{"attributes":{"":""}}`,
	} {
		f.Add([]byte(seed))
	}
	server := httpapi.New(httpapi.Config{Limiter: newLimiter(f, newStore())})
	f.Fuzz(func(t *testing.T, body []byte) {
		var rc fasthttp.RequestCtx
		rc.Request.Header.SetMethod("POST")
		rc.Request.SetRequestURI("/v1/check")
		rc.Request.SetBody(body)
		server.Serve(t.Context(), &rc)
		switch status := rc.Response.StatusCode(); status {
		case 200, 400, 404, 429:
		default:
			t.Errorf("status %d", status)
		}
		if answer := rc.Response.Body(); !json.Valid(answer) {
			t.Errorf("the answer is no JSON: %q", answer)
		}
		queries, errs, batch, err := httpapi.ParseCheck(body)
		if err != nil {
			return
		}
		bodies := []json.RawMessage{body}
		if batch {
			var outer struct{ Checks []json.RawMessage }
			if err := json.Unmarshal(body, &outer); err != nil {
				t.Fatalf("encoding/json refuses it: %v", err)
			}
			bodies = outer.Checks
		}
		if len(queries) != len(bodies) {
			t.Fatalf("got %d questions, want %d", len(queries), len(bodies))
		}
		for i := range queries {
			if errs[i] == nil {
				compareQuery(t, &queries[i], bodies[i])
			}
		}
	})
}

// FuzzSettleBody holds the parser of settlements against encoding/json, and no body makes another
// status than that of a body or a ticket at fault, or of a ticket that is none of ours.
func FuzzSettleBody(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"ticket":"AQ"}`, `{"ticket":"AQ","cost":{"tokens":843}}`, `{"cost":7,"ticket":"\u0041Q"}`, `{"ticket":""}`, `{"ticket":true}`,
		`{"ticket":"AQ","cost":{"tokens":1,"tokens":2}}`, `{"ticket":"\ud800"}`, `{"ticket":"AQ","limit":"all"}`, `{"ticket":"AQ","cost":1e3}}`,
		`{"ticket":"AQAAAAAAAAAAGk5HNDdLSDZJS0VYQjNHSllKREdVWVAyNUk0tgb9Bwd0RYFFG43yTMGJOV0aoEL9BjvL430a4IwsOccNGMd3yVB5AAY2YIlPwvzkpB7qm9jg"}`,
	} {
		f.Add([]byte(seed))
	}
	server := httpapi.New(httpapi.Config{Limiter: newLimiter(f, newStore())})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/finish", "/v1/renew"} {
			var rc fasthttp.RequestCtx
			rc.Request.Header.SetMethod("POST")
			rc.Request.SetRequestURI(path)
			rc.Request.SetBody(body)
			server.Serve(t.Context(), &rc)
			if status := rc.Response.StatusCode(); status != 400 && status != 410 {
				t.Errorf("%s: status %d", path, status)
			}
			if answer := rc.Response.Body(); !json.Valid(answer) {
				t.Errorf("%s: the answer is no JSON: %q", path, answer)
			}
			ticket, q, err := httpapi.ParseSettlement(path, body)
			if err != nil {
				continue
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal(body, &members); err != nil {
				t.Fatalf("encoding/json refuses it: %v", err)
			}
			var want string
			if err := json.Unmarshal(members["ticket"], &want); err != nil || ticket != want || ticket == "" {
				t.Errorf("ticket: got %q, want %q: %v", ticket, want, err)
			}
			compareCost(t, &q, bytes.TrimSpace(members["cost"]))
		}
	})
}

func compareQuery(t *testing.T, q *limit.Query, body []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatalf("encoding/json refuses it: %v", err)
	}
	str := func(name string) string {
		var s string
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return s
	}
	if q.Policy != str("policy") || q.Limit != str("limit") || q.Key != str("key") {
		t.Errorf("got %+v from %s", q, body)
	}
	if _, ok := members["key"]; ok != q.HasKey {
		t.Errorf("HasKey: got %t", q.HasKey)
	}
	var attributes map[string]string
	if raw, ok := members["attributes"]; ok {
		if err := json.Unmarshal(raw, &attributes); err != nil {
			t.Errorf("attributes: %v", err)
		}
	}
	if len(attributes) != len(q.Attributes) {
		t.Errorf("got %d attributes, want %d", len(q.Attributes), len(attributes))
	}
	for _, a := range q.Attributes {
		if want, ok := attributes[a.Name]; !ok || want != a.Value {
			t.Errorf("attribute %q: got %q, want %q", a.Name, a.Value, want)
		}
	}
	compareCost(t, q, bytes.TrimSpace(members["cost"]))
	if q.RequestID != str("request_id") || len(q.RequestID) > 256 {
		t.Errorf("request_id: got %q from %s", q.RequestID, body)
	}
	if _, ok := members["request_id"]; ok != (q.RequestID != "") {
		t.Errorf("request_id: got %q", q.RequestID)
	}
	if want := string(bytes.TrimSpace(members["ticket"])) == "true"; q.Ticket != want {
		t.Errorf("ticket: got %t", q.Ticket)
	}
	var wait int64
	if raw, ok := members["max_wait_ms"]; ok {
		if err := json.Unmarshal(raw, &wait); err != nil {
			t.Errorf("max_wait_ms: %v", err)
		}
	}
	if q.MaxWait.Milliseconds() != wait || wait < 0 || wait > 600_000 {
		t.Errorf("max_wait_ms: got %v", q.MaxWait)
	}
}

func compareCost(t *testing.T, q *limit.Query, cost []byte) {
	t.Helper()
	var units map[string]json.Number
	switch {
	case len(cost) == 0:
	case cost[0] == '{':
		if err := json.Unmarshal(cost, &units); err != nil {
			t.Errorf("cost: %v", err)
		}
	default:
		if !q.HasAmount || strconv.FormatInt(q.Amount, 10) != string(cost) {
			t.Errorf("cost: got %d, want %s", q.Amount, cost)
		}
	}
	if len(units) != len(q.Costs) {
		t.Errorf("got %d units, want %d", len(q.Costs), len(units))
	}
	for _, c := range q.Costs {
		if got, want := strconv.FormatInt(c.Amount, 10), units[c.Unit].String(); got != want {
			t.Errorf("cost of %q: got %s, want %s", c.Unit, got, want)
		}
	}
}
