package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
)

// A request with an estimate, and what it has really used in the end.
func TestTicket(t *testing.T) {
	const estimate = `{"policy":"chat","attributes":{"user":"u"},"cost":{"tokens":400},"ticket":true}`
	tests := []struct {
		name, cost string
		left       string // requests and tokens after the finish
	}{
		{"less than the estimate", `{"tokens":150}`, "[4 850]"},
		{"more than the estimate", `{"tokens":900}`, "[4 100]"},
		{"more than there is: a debt", `{"tokens":1500}`, "[4 -500]"},
		{"cancelled", `{"tokens":0,"requests":0}`, "[5 1000]"},
		{"a number is requests in a policy", `0`, "[5 600]"},
		{"as estimated", ``, "[4 600]"},
		{"no unit is named", `{}`, "[4 600]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startReal(t, nil)
			d := s.ask(t, 200, estimate)
			if d.left() != "[4 600]" || d.Ticket == "" {
				t.Fatalf("got %+v", d)
			}
			settled := s.call(t, 200, "/v1/finish", finishBody(d.Ticket, tt.cost))
			if settled.Settled == nil || !*settled.Settled || settled.left() != tt.left {
				t.Errorf("got %+v, want settled and %s left", settled, tt.left)
			}
			again := s.call(t, 200, "/v1/finish", finishBody(d.Ticket, `{"tokens":1}`))
			if again.Settled == nil || *again.Settled || again.left() != tt.left {
				t.Errorf("again: got %+v, want that it was settled before, and %s left", again, tt.left)
			}
			if now := s.look(t, "policy=chat&user=u"); now.left() != tt.left {
				t.Errorf("got %s left, want %s", now.left(), tt.left)
			}
			wantProblem(t, s.do(t, "POST", "/v1/renew", finishBody(d.Ticket, "")), 410, "ticket-expired", "")
		})
	}
}

// The answer of a finish, to the byte.
func TestFinishAnswer(t *testing.T) {
	s := start(t, nil)
	d := s.ask(t, 200, `{"policy":"shadowed","attributes":{"user":"u"},"ticket":true}`)
	rules := testRules(t)
	s.store.settled = limit.Settled{Done: true}
	for i, l := range rules.Limits[:3] {
		s.store.settled.Verdicts = append(s.store.settled.Verdicts, limit.Verdict{
			Limit: l, Settings: &l.Settings, Allowed: true, Known: true, Remaining: int64(i - 1), ResetAfter: 1500*time.Microsecond + 1,
		})
	}
	got := s.do(t, "POST", "/v1/finish", finishBody(d.Ticket, `{"requests":7}`))
	want := `{"settled":true,"limits":[{"name":"per-user","limit":3,"remaining":0,"debt":1,"reset_after_ms":2},` +
		`{"name":"tokens","limit":60000,"remaining":0,"reset_after_ms":2},{"name":"watch","limit":1,"remaining":1,"reset_after_ms":2,"shadow":true}]}`
	if got.status != 200 || got.body != want {
		t.Errorf("got %s\nwant 200 %s", got, want)
	}
	wantHeaders(t, got.header, map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "RateLimit": "", "RateLimit-Policy": "", "Retry-After": "",
	})
	asked := s.store.settles[0]
	if asked.Act != limit.Finish || fmt.Sprint(asked.Actual) != "[7 7]" || asked.Ticket.Policy != "shadowed" {
		t.Errorf("the store was asked %+v", asked)
	}
}

func TestSettleErrors(t *testing.T) {
	const capacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	tests := []struct {
		err         error
		status      int
		code, field string
		kind, wait  string
		says        string
	}{
		{limit.ErrExpired, 410, "ticket-expired", "", "about:blank", "", "nothing left to do"},
		{fmt.Errorf("remote: call: %w", limit.ErrUnavailable), 503, "temporary-reduced-capacity", "", capacity, "1", "asking again is safe"},
		{fmt.Errorf("remote: %w", limit.ErrWrongType), 503, "wrong-type", "", "about:blank", "", "left alone"},
		{&limit.InvalidError{Field: "cost.tokens", Reason: "leaves a debt"}, 400, "invalid-request", "cost.tokens", "about:blank", "", "leaves a debt"},
		{fmt.Errorf("remote: a bug"), 500, "internal", "", "about:blank", "", "log"},
	}
	for _, tt := range tests {
		t.Run(tt.code, func(t *testing.T) {
			s := start(t, nil)
			ticket := s.ask(t, 200, `{"limit":"per-user","key":"u","ticket":true}`).Ticket
			s.store.err = tt.err
			for _, path := range []string{"/v1/finish", "/v1/renew"} {
				got := s.do(t, "POST", path, finishBody(ticket, ""))
				wantProblem(t, got, tt.status, tt.code, tt.field)
				wantHeaders(t, got.header, map[string]string{"Retry-After": tt.wait})
				if p := decode[problem](t, got.body); p.Type != tt.kind || !strings.Contains(p.Detail, tt.says) {
					t.Errorf("got %s, want type %q, and that it says %q", got, tt.kind, tt.says)
				}
			}
			if strings.Contains(s.log.String(), ticket) {
				t.Error("the ticket is in the log")
			}
		})
	}
}

func TestSettleRefuses(t *testing.T) {
	s := startReal(t, nil)
	ticket := s.ask(t, 200, `{"policy":"chat","attributes":{"user":"u"},"ticket":true}`).Ticket
	with := func(cost string) string { return finishBody(ticket, cost) }
	tests := []struct {
		name, path, body, field, says string
	}{
		{"empty", "/v1/finish", ``, "", `"ticket"`},
		{"empty", "/v1/renew", ``, "", `"ticket"`},
		{"an array", "/v1/finish", `[]`, "", "JSON object"},
		{"broken", "/v1/renew", `{"ticket":`, "", "byte"},
		{"no ticket", "/v1/finish", `{"cost":1}`, "ticket", "missing"},
		{"no ticket", "/v1/renew", `{}`, "ticket", "missing"},
		{"an empty ticket", "/v1/finish", `{"ticket":""}`, "ticket", "empty"},
		{"a ticket true", "/v1/finish", `{"ticket":true}`, "ticket", "must be a string"},
		{"a ticket null", "/v1/renew", `{"ticket":null}`, "ticket", "must be a string"},
		{"a ticket twice", "/v1/finish", `{"ticket":"a","ticket":"a"}`, "ticket", "given twice"},
		{"an unknown field", "/v1/finish", `{"ticket":"a","policy":"chat"}`, "policy", "there are cost, ticket"},
		{"an unknown field", "/v1/renew", `{"ticket":"a","cost":1}`, "cost", "ticket alone"},
		{"checks", "/v1/finish", `{"checks":[{"ticket":"a"}]}`, "checks", "unknown field"},
		{"a wait", "/v1/finish", `{"ticket":"a","max_wait_ms":0}`, "max_wait_ms", "unknown field"},
		{"a cost null", "/v1/finish", with(`null`), "cost", "whole number"},
		{"a negative cost", "/v1/finish", with(`{"tokens":-1}`), "cost.tokens", "negative"},
		{"a cost that is no number", "/v1/finish", with(`1e3`), "cost", "without fraction or exponent"},
		{"a cost above 2^53", "/v1/finish", with(`9007199254740993`), "cost", "at most 9007199254740992"},
		{"a unit twice", "/v1/finish", with(`{"tokens":1,"tokens":1}`), "cost.tokens", "given twice"},
		{"a unit that nobody counts", "/v1/finish", with(`{"tokns":1}`), "cost.tokns", "counts this unit"},
		{"half a surrogate pair", "/v1/finish", `{"ticket":"\ud800"}`, "", "surrogate"},
	}
	for _, tt := range tests {
		t.Run(tt.name+tt.path, func(t *testing.T) {
			got := s.do(t, "POST", tt.path, tt.body)
			wantProblem(t, got, 400, "invalid-request", tt.field)
			if p := decode[problem](t, got.body); !strings.Contains(p.Detail, tt.says) {
				t.Errorf("got detail %q, want it to say %q", p.Detail, tt.says)
			}
		})
	}
	if d := s.look(t, "policy=chat&user=u"); d.left() != "[4 900]" {
		t.Errorf("got %s left, want what the ticket has charged", d.left())
	}
}

// A ticket that was changed, cut, or made by others is told from one that has expired.
func TestForgedTickets(t *testing.T) {
	s, other := startReal(t, nil), startReal(t, nil)
	ticket := s.ask(t, 200, `{"limit":"tokens","key":"u","ticket":true}`).Ticket
	raw, err := base64.RawURLEncoding.DecodeString(ticket)
	if err != nil {
		t.Fatal(err)
	}
	changed := append([]byte(nil), raw...)
	changed[len(changed)-10] ^= 1
	for name, forged := range map[string]string{
		"any text": "hello", "cut": ticket[:len(ticket)-1], "longer": ticket + "A", "padded": ticket + "==",
		"changed": base64.RawURLEncoding.EncodeToString(changed), "48 KB": strings.Repeat("A", 48<<10), "long": strings.Repeat("A", 60_000),
	} {
		for _, path := range []string{"/v1/finish", "/v1/renew"} {
			got := s.do(t, "POST", path, finishBody(forged, ""))
			wantProblem(t, got, 400, "invalid-ticket", "ticket")
			if len(got.body) > 2000 || strings.Contains(got.body, forged) {
				t.Errorf("%s: the answer repeats it: %s", name, got)
			}
		}
	}
	for n, want := range map[int]error{48 << 10: nil, 48<<10 + 1: limit.ErrForged} { // without a look inside
		if _, _, err := httpapi.ParseSettlement("/v1/renew", []byte(finishBody(strings.Repeat("A", n), ""))); err != want {
			t.Errorf("%d bytes: got %v, want %v", n, err, want)
		}
	}
	got := other.do(t, "POST", "/v1/finish", finishBody(ticket, ""))
	wantProblem(t, got, 410, "ticket-expired", "")
	if !*s.call(t, 200, "/v1/finish", finishBody(ticket, "")).Settled {
		t.Error("the ticket itself is no longer good")
	}
}

// Questions of one request have tickets and request IDs of their own; none of them may wait.
func TestChecksWithTickets(t *testing.T) {
	s := startReal(t, nil)
	got := s.check(t, `{"checks":[
		{"limit":"tokens","key":"u","cost":10,"ticket":true},
		{"limit":"tokens","key":"u","cost":20,"request_id":"r"},
		{"limit":"tokens","key":"u","cost":20,"request_id":"r"},
		{"limit":"tokens","key":"u","cost":21,"request_id":"r"},
		{"limit":"paced","key":"u","max_wait_ms":1},
		{"limit":"paced","key":"u","max_wait_ms":0},
		{"limit":"tokens","key":"u","cost":2000,"ticket":true}]}`)
	type either struct {
		problem
		decision
	}
	decisions := decode[struct{ Decisions []either }](t, got.body).Decisions
	var lines []string
	for _, d := range decisions {
		lines = append(lines, fmt.Sprint(d.problem.Status, " ", d.Code, " ", d.Field, " ", d.Allowed, " ", d.left(), " ", d.Ticket != ""))
	}
	want := []string{
		"0   true [990] true", "0   true [970] false", "0   true [970] false", "400 invalid-request request_id false [] false",
		"400 invalid-request max_wait_ms false [] false", "0   true [0] false", "0   false [0] false",
	}
	if g, w := strings.Join(lines, "\n"), strings.Join(want, "\n"); got.status != 200 || g != w {
		t.Fatalf("got %d\n%s\nwant\n%s", got.status, g, w)
	}
	if d := s.call(t, 200, "/v1/finish", finishBody(decisions[0].Ticket, `0`)); d.left() != "[980]" {
		t.Errorf("got %s left, want 980", d.left())
	}
}

// A client that asks again after a lost reply is charged once.
func TestRequestID(t *testing.T) {
	s := startReal(t, nil)
	const ask = `{"policy":"chat","attributes":{"user":"u"},"cost":{"tokens":300},"ticket":true,"request_id":"%s"}`
	longest := strings.Repeat("é", 128)
	for _, id := range []string{"r", longest} {
		first := s.check(t, fmt.Sprintf(ask, id))
		ticket := decode[decision](t, first.body).Ticket
		for range 2 {
			again := s.check(t, fmt.Sprintf(ask, id))
			other := decode[decision](t, again.body).Ticket // sealed anew, of the same decision
			if again.status != 200 || strings.Replace(again.body, other, ticket, 1) != first.body {
				t.Errorf("got %s\nwant %s", again, first)
			}
			ticket, first.body = other, again.body
		}
	}
	if d := s.look(t, "policy=chat&user=u"); d.left() != "[3 400]" {
		t.Errorf("got %s left, want what two requests left", d.left())
	}
	got := s.check(t, fmt.Sprintf(strings.Replace(ask, "300", "301", 1), "r"))
	wantProblem(t, got, 400, "invalid-request", "request_id")
	for range 2 { // nothing remembers a denial
		s.ask(t, 429, fmt.Sprintf(strings.Replace(ask, "300", "401", 1), "denied"))
	}
	s.ask(t, 200, fmt.Sprintf(strings.Replace(ask, "300", "400", 1), "denied"))
}

// A slot is held until its ticket is finished, and lasts longer when it is renewed.
func TestSlots(t *testing.T) {
	s := startReal(t, nil)
	const ask = `{"limit":"streams","key":"u"}`
	first, second := s.ask(t, 200, ask), s.ask(t, 200, ask)
	if first.Ticket == "" || second.Ticket == "" {
		t.Fatalf("got %+v and %+v, want tickets", first, second)
	}
	s.ask(t, 429, ask)
	renewed := s.call(t, 200, "/v1/renew", finishBody(first.Ticket, "")).Ticket
	if renewed == "" || renewed == first.Ticket {
		t.Fatalf("got %q, want another ticket", renewed)
	}
	for range 2 { // by either text: it is one ticket
		s.call(t, 200, "/v1/finish", finishBody(first.Ticket, ""))
		s.call(t, 200, "/v1/finish", finishBody(renewed, ""))
	}
	s.ask(t, 200, ask)
	s.ask(t, 429, ask)
	wantProblem(t, s.do(t, "POST", "/v1/renew", finishBody(renewed, "")), 410, "ticket-expired", "")
}

// Clients that take a slot and are gone before they have read the answer give it back by its ttl, at
// the latest.
func TestDroppedConnectionsLeaveNoSlot(t *testing.T) {
	realBothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		const ask = `{"limit":"brief","key":"u"}`
		for range 20 {
			c := dial()
			c.say(post("/v1/check", ask))
			c.Close()
		}
		poll(t, "the slot is never free again", func() bool {
			got := s.check(t, ask)
			if got.status == 200 {
				s.call(t, 200, "/v1/finish", finishBody(decode[decision](t, got.body).Ticket, ""))
			}
			return got.status == 200
		})
		poll(t, "a slot is left", func() bool { return s.look(t, "limit=brief&user=u").left() == "[1]" })
	})
}
