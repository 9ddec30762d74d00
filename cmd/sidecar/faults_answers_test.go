package main_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestFaultWaitsInOtherUnits: Retry-After is whole seconds, never milliseconds, a fraction or the
// whole window; what is left falls by one each time.
func TestFaultWaitsInOtherUnits(t *testing.T) {
	everywhere(t, `
limits:
  - {name: minute, rate: 5/60s, burst: 5, key: [user]}
  - {name: tenth, rate: 10/s, burst: 1, key: [user]}
  - {name: pair, rate: 2/60s, burst: 2, key: [user]}
`, func(s *site) {
		for i := range int64(5) {
			r := s.take("minute", "u1", 1)
			if full := time.Duration(12*(i+1)) * time.Second; r.left() != 4-i || r.reset() <= full-2*time.Second || r.reset() > full {
				s.t.Errorf("got %s, want %d left and full in %v", r.text, 4-i, full)
			}
		}
		if r := s.take("minute", "u1", 1); r.header.Get("Retry-After") != "12" || r.wait() <= 10*time.Second || r.wait() > 12*time.Second {
			s.t.Errorf("got %v %s, want a wait of 12 s", r.header, r.text)
		}
		if r := s.take("minute", "u1", 5); r.header.Get("Retry-After") != "60" {
			s.t.Errorf("got Retry-After %s, want 60 for 5 at 5 a minute", r.header.Get("Retry-After"))
		}
		for range 3 {
			if r := s.take("tenth", "u1", 1); r.status != http.StatusOK && (r.header.Get("Retry-After") != "1" || r.wait() > 100*time.Millisecond) {
				s.t.Errorf("got Retry-After %s and %v, want 1 and 100 ms at most", r.header.Get("Retry-After"), r.wait())
			}
		}
		s.take("pair", "u1", 2)
		if r := s.take("pair", "u1", 1); r.reset() > time.Minute || r.header.Get("Retry-After") != "30" || r.header.Get("X-RateLimit-Reset") != "60" {
			s.t.Errorf("got %s %v, want 30 s to wait and 60 to full", r.text, r.header)
		}
	})
}

// TestFaultZeroWaits: however close to the edge a call comes, no wait is zero or negative, nor is
// anything that is left.
func TestFaultZeroWaits(t *testing.T) {
	everywhere(t, `
limits:
  - {name: edge, rate: 1000/s, burst: 1, key: [user]}
  - {name: near, rate: 300/s, burst: 2, key: [user]}
`, func(s *site) {
		denials := 0
		crowd(8, func() {
			for range 40 {
				for _, name := range []string{"edge", "near"} {
					s.wantSoundNumbers(s.take(name, "u1", 1))
				}
			}
		})
		for range 20 {
			if s.take("near", "u1", 1).status == http.StatusTooManyRequests {
				denials++
			}
		}
		if n := s.metric(s.t, `tidegate_requests_total{policy="",result="denied"`); n < 20 {
			s.t.Errorf("%v denials, want enough to have met the edge", n)
		}
	})
}

// wantSoundNumbers checks that no number of an answer is what it cannot be.
func (s *site) wantSoundNumbers(r *reply) {
	if r.status == http.StatusTooManyRequests {
		for _, name := range []string{"Retry-After", "retry-after-ms"} {
			if n, err := strconv.Atoi(r.header.Get(name)); err != nil || n < 1 {
				s.t.Errorf("%s is %q: %s", name, r.header.Get(name), r.text)
			}
		}
		if r.wait() < time.Millisecond {
			s.t.Errorf("a wait of %v: %s", r.wait(), r.text)
		}
	}
	if r.left() < 0 || r.reset() < 0 || strings.Contains(r.header.Get("RateLimit"), "-") {
		s.t.Errorf("below zero: %s %s", r.text, r.header.Get("RateLimit"))
	}
}

// TestFaultSharedKeys: a key is taken as it is: whole, byte by byte, with its limit's name, and
// with its parts told apart.
func TestFaultSharedKeys(t *testing.T) {
	everywhere(t, `
limits:
  - {name: one, rate: 1/h, burst: 1, key: [user]}
  - {name: on, rate: 1/h, burst: 1, key: [user]}
  - {name: ip, rate: 1/h, burst: 1, key: [ip]}
  - {name: pair, rate: 1/h, burst: 1, key: [x, y]}
  - {name: x, rate: 1/h, burst: 1, key: [x]}
  - {name: x_y, rate: 1/h, burst: 1, key: [x_y]}
`, func(s *site) {
		long := strings.Repeat("k", 999)
		users := []string{
			long + "a", long + "b", long, // told apart by their end
			"User", "user", " user", "user ", "USER", "Å", "å", "\u00e9", "e\u0301", "A-ring", "a-ring",
			"a:b", "a%3Ab", "a%3ab", "a_b", "a-b", "a.b", "a", "b", "{a}", "a}b", "0", "00", "null", "127.0.0.1",
		}
		questions := []string{
			`{"limit": "on", "key": "user"}`, `{"limit": "ip", "key": "127.0.0.1"}`,
			`{"limit": "x", "key": "y_z"}`, `{"limit": "x_y", "key": "z"}`,
		}
		for _, user := range users {
			questions = append(questions, fmt.Sprintf(`{"limit": "one", "key": %q}`, user))
		}
		for _, p := range [][2]string{{"a", "b:c"}, {"a:b", "c"}, {"a_b", "c"}, {"a", "b_c"}, {"ab", "c"}, {"a", "bc"}, {"b", "a"}, {"a", "b"}} {
			questions = append(questions, fmt.Sprintf(`{"limit": "pair", "attributes": {"x": %q, "y": %q}}`, p[0], p[1]))
		}
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} { // none is another's, then each is its own
			for _, q := range questions {
				if r := s.ask(s.t, q); r.status != want {
					s.t.Errorf("%.80s: got %d %s, want %d", q, r.status, r.text, want)
				}
			}
		}
	})
}

// TestFaultMissingKeys: a part of the key that is empty or not there is refused, and lets nothing
// through.
func TestFaultMissingKeys(t *testing.T) {
	everywhere(t, `
limits:
  - {name: one, rate: 1/h, burst: 1, key: [user]}
  - {name: some, rate: 1/h, burst: 1, key: [user], when: {plan: free}}
policies:
  chat: {limits: [one, some]}
`, func(s *site) {
		for _, body := range []string{
			``, `null`, `{}`, `[]`, `{"limit": "one"}`, `{"limit": "one", "key": ""}`, `{"limit": "one", "key": null}`,
			`{"limit": "one", "attributes": {}}`, `{"limit": "one", "attributes": {"user": ""}}`, `{"limit": "one", "attributes": {"user": null}}`,
			`{"limit": "one", "attributes": {"User": "u1"}}`, `{"limit": "one", "attributes": null}`, `{"limit": "one", "key": 5}`,
			`{"policy": "chat", "attributes": {"user": "u1"}}`, `{"policy": "chat", "attributes": {"plan": "free"}}`,
			`{"limit": "", "key": "u1"}`, `{"policy": "", "key": "u1"}`, `{"checks": []}`, `{"checks": null}`,
			`{"limit": "one", "key": "u1", "cost": null}`, `{"limit": "one", "key": "u1", "cots": 1}`,
		} {
			if r := s.ask(s.t, body); r.status != http.StatusBadRequest || r.Code != "invalid-request" {
				s.t.Errorf("%s: got %d %s, want 400", body, r.status, r.text)
			}
		}
		for _, body := range []string{`{"limit": "on", "key": "u1"}`, `{"policy": "one", "key": "u1"}`} {
			if r := s.ask(s.t, body); r.status != http.StatusNotFound {
				s.t.Errorf("%s: got %d %s, want 404", body, r.status, r.text)
			}
		}
		if keys := s.keys(); len(keys) > 0 {
			s.t.Errorf("what was refused left %v", keys)
		}
		s.wantPass(1, 0, "one", "u1")
	})
}

// TestFaultStrangeKeys: line ends, NUL and emoji in a key forge no log line, break no connection
// and are keys like any other; what is no UTF-8 is refused.
func TestFaultStrangeKeys(t *testing.T) {
	everywhere(t, `
limits:
  - {name: one, rate: 1/h, burst: 1, key: [user]}
`, func(s *site) {
		lines := strings.Count(s.logged(), "\n")
		for _, key := range []string{
			`a\r\nSET x y\r\n`, `a\nb`, `a\u0000b`, `a`, `😀`, ` `, `\t`, `%`, `*`, `?`, `\"`, `\\`, `{\"msg\":\"forged\"}`, `\u001b[31m`, `\u2028`, `\ud83d\ude00x`,
			strings.Repeat("y", 50_000),
		} {
			body := `{"limit": "one", "key": "` + key + `"}`
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				if r := s.ask(s.t, body); r.status != want {
					s.t.Errorf("%.80s: got %d %.200s, want %d", body, r.status, r.text, want)
				}
			}
		}
		for _, key := range []string{"\xff", "a\xc3", `\ud83d`, "a\nb", "\x00"} {
			if r := s.ask(s.t, `{"limit": "one", "key": "`+key+`"}`); r.status != http.StatusBadRequest {
				s.t.Errorf("%q: got %d %s, want 400", key, r.status, r.text)
			}
		}
		if r := s.peek("one", "a\r\nSET x y\r\n"); r.status != http.StatusOK || r.left() != 0 {
			s.t.Errorf("the same key in a query: got %d %s, want 0 left", r.status, r.text)
		}
		s.wantPass(1, 0, "one", "next")
		if log := s.logged(); strings.Count(log, "\n") != lines {
			s.t.Errorf("logged %s", log)
		}
	})
}
