package main_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// asCharged as a number of tokens names none: a request is asked as its limits say by themselves, and a
// ticket is finished as it was charged.
const asCharged = -1

// costOf is the member of a question that names so many tokens.
func costOf(tokens int64) string {
	if tokens == asCharged {
		return ""
	}
	return fmt.Sprintf(`, "cost": {"tokens": %d}`, tokens)
}

// grant asks policy for user u1, which must be allowed, and returns the ticket.
func (s *site) grant(policy string, tokens int64) string {
	s.t.Helper()
	r := s.ask(s.t, fmt.Sprintf(`{"policy": %q, "attributes": {"user": "u1"}, "ticket": true%s}`, policy, costOf(tokens)))
	if r.status != http.StatusOK || r.Ticket == "" {
		s.t.Fatalf("got %d %s", r.status, r.text)
	}
	return r.Ticket
}

// finish settles a ticket with so many tokens, and returns whether it was not settled before.
func (s *site) finish(ticket string, tokens int64) bool {
	s.t.Helper()
	r := s.send(s.t, http.MethodPost, "/v1/finish", fmt.Sprintf(`{"ticket": %q%s}`, ticket, costOf(tokens)))
	if r.status != http.StatusOK {
		s.t.Errorf("finish: got %d %s", r.status, r.text)
	}
	return r.Settled
}

// tokenLimits begins a list of limits with one of 10 tokens for each algorithm that counts them.
const tokenLimits = `limits:
  - {name: bucket, rate: 1/h, burst: 10, unit: tokens, key: [user]}
  - {name: leaky, algorithm: leaky_bucket, rate: 1/h, burst: 10, unit: tokens, key: [user]}
  - {name: leakylog, algorithm: leaky_bucket_log, rate: 1/h, capacity: 10, unit: tokens, key: [user]}
  - {name: log, algorithm: sliding_window_log, limit: 10, window: 1h, unit: tokens, key: [user]}
  - {name: sliding, algorithm: sliding_window, limit: 10, window: 1h, unit: tokens, key: [user]}
  - {name: fixed, algorithm: fixed_window, limit: 10, window: 1h, unit: tokens, key: [user]}`

const ticketLimits = "\n" + tokenLimits + `
  - {name: short, algorithm: fixed_window, limit: 10, window: 500ms, unit: tokens, key: [user]}
  - {name: shortlog, algorithm: sliding_window_log, limit: 10, window: 500ms, unit: tokens, key: [user]}
  - {name: global, algorithm: concurrency, limit: 3, ttl: 1h, key: [user]}
  - {name: route, algorithm: concurrency, limit: 2, ttl: 1h, key: [user]}
  - {name: brief, algorithm: concurrency, limit: 2, ttl: 1s, key: [user]}
  - {name: twice, rate: 2/h, burst: 2, key: [user]}
  - {name: single, algorithm: concurrency, limit: 1, ttl: 1h, key: [user]}
policies:
  tokens: {limits: [bucket, leaky, leakylog, log, sliding, fixed]}
  short: {limits: [short, shortlog]}
  slots: {limits: [bucket, global, route]}
  both: {limits: [twice, single]}
`

// TestFaultRefunds: what is given back counts at once, also when nothing was left, and never more
// than what was charged; a second time changes nothing; a debt is a debt.
func TestFaultRefunds(t *testing.T) {
	everywhere(t, ticketLimits, func(s *site) {
		limits := []string{"bucket", "leaky", "leakylog", "log", "sliding", "fixed"}
		wantLeft := func(want int64) {
			s.t.Helper()
			for _, limit := range limits {
				if got := s.peek(limit, "u1").left(); got != want {
					s.t.Errorf("%s: %d left, want %d", limit, got, want)
				}
			}
		}
		all, one := s.grant("tokens", 9), s.grant("tokens", 1)
		wantLeft(0)
		if !s.finish(one, 0) || s.finish(one, 0) {
			s.t.Error("a ticket is settled once, and the second time says so")
		}
		wantLeft(1)
		s.finish(s.grant("tokens", 1), 3)
		wantLeft(-2)
		if r := s.ask(s.t, `{"policy": "tokens", "attributes": {"user": "u1"}, "cost": {"tokens": 0}}`); r.status != http.StatusTooManyRequests {
			s.t.Errorf("in debt nothing passes, not even a cost of 0: %s", r.text)
		}
		s.finish(all, 0)
		wantLeft(7)
		time.Sleep(1100 * time.Millisecond) // until the denial is no longer remembered
		s.finish(s.grant("tokens", 7), 0)
		wantLeft(7)
	})
}

// TestFaultRefundAfterTheWindow: what comes back after the window has ended changes nothing: it makes
// no key, leaves none without a time to live, and gives the next window nothing.
func TestFaultRefundAfterTheWindow(t *testing.T) {
	everywhere(t, ticketLimits, func(s *site) {
		var tickets []string
		for range 5 {
			tickets = append(tickets, s.grant("short", 2))
		}
		time.Sleep(600 * time.Millisecond)
		for _, ticket := range tickets {
			s.finish(ticket, 0)
		}
		for _, limit := range []string{"short", "shortlog"} {
			if got := s.peek(limit, "u1").left(); got != 10 {
				s.t.Errorf("%s: %d left, want 10", limit, got)
			}
		}
		for _, key := range s.keys() {
			if ttl := s.ttl(key); ttl <= 0 {
				s.t.Errorf("%s lives for %v", key, ttl)
			}
		}
	})
}

// TestFaultSlots: a slot is freed once, in every limit that holds one, and by itself after its ttl;
// who is refused by one limit has charged no other.
func TestFaultSlots(t *testing.T) {
	everywhere(t, ticketLimits, func(s *site) {
		first, second := s.grant("slots", 1), s.grant("slots", 1)
		if r := s.ask(s.t, `{"policy": "slots", "attributes": {"user": "u1"}, "cost": {"tokens": 1}}`); r.status != http.StatusTooManyRequests {
			s.t.Errorf("a third: %s", r.text)
		}
		s.finish(first, 1)
		s.finish(first, 1)
		third := s.grant("slots", 1)
		if r := s.ask(s.t, `{"policy": "slots", "attributes": {"user": "u1"}, "cost": {"tokens": 1}}`); r.status != http.StatusTooManyRequests {
			s.t.Errorf("freed twice, taken twice: %s", r.text)
		}
		s.finish(second, 0)
		s.finish(third, 0)
		for range 20 {
			s.finish(s.grant("slots", 0), 0)
		}
		for limit, want := range map[string]int64{"global": 3, "route": 2, "bucket": 9} {
			if got := s.peek(limit, "u1").left(); got != want {
				s.t.Errorf("%s: %d left, want %d", limit, got, want)
			}
		}

		if passed, _ := s.count(3, "brief", "u1"); passed != 2 {
			s.t.Errorf("%d slots, want 2", passed)
		}
		s.wantTight("brief", "u1")

		held := s.ask(s.t, `{"policy": "both", "attributes": {"user": "u1"}}`)
		for range 5 {
			if r := s.ask(s.t, `{"policy": "both", "attributes": {"user": "u1"}}`); r.status != http.StatusTooManyRequests {
				s.t.Errorf("beside the only slot: %s", r.text)
			}
		}
		s.finish(held.Ticket, asCharged)
		if r := s.ask(s.t, `{"policy": "both", "attributes": {"user": "u1"}}`); r.status != http.StatusOK {
			s.t.Errorf("the refused requests were charged: %s", r.text)
		}
	})
}

// TestFaultHeldSlotsSurvive: slots that are held stay held through a reload and the end of the sidecar that
// granted them, and a ticket is good through any other.
func TestFaultHeldSlotsSurvive(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSite(t, server, server.Addr(), "timeout: 10s", ticketLimits)
	ticket := s.grant("both", asCharged)
	s.reload(1, ticketLimits+"  more: {limits: [twice]}\n")
	const question = `{"policy": "both", "attributes": {"user": "u1"}}`
	if r := s.ask(t, question); r.status != http.StatusTooManyRequests {
		t.Errorf("after a reload: %s", r.text)
	}
	s.signal(t, syscall.SIGTERM)
	s.wantExit(t, 0)
	again := newSite(t, server, server.Addr(), "timeout: 10s", ticketLimits)
	if r := again.ask(t, question); r.status != http.StatusTooManyRequests {
		t.Errorf("in another sidecar: %s", r.text)
	}
	if !again.finish(ticket, asCharged) {
		t.Error("the other sidecar did not settle the ticket")
	}
	if r := again.ask(t, question); r.status != http.StatusOK {
		t.Errorf("once it is finished elsewhere: %s", r.text)
	}
}

// TestFaultRepeatedRequest: one request_id is charged once, however often and through whichever sidecar
// it is asked, also when the first reply was lost between Redis and the sidecar.
func TestFaultRepeatedRequest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const limits = `
limits:
  - {name: once, rate: 1/h, burst: 10, key: [user], on_redis_failure: closed}
  - {name: slot, algorithm: concurrency, limit: 1, ttl: 1h, key: [user], on_redis_failure: closed}
policies:
  p: {limits: [once, slot]}
`
	first := newSite(t, server, proxy.Addr(), "timeout: 300ms", limits)
	second := newSite(t, server, server.Addr(), "timeout: 10s", limits)
	const question = `{"policy": "p", "attributes": {"user": "u1"}, "request_id": "r1"}`
	if r := first.ask(t, `{"policy": "p", "attributes": {"user": "u2"}}`); r.status != http.StatusOK {
		t.Fatal(r.text)
	}
	proxy.DropReplies(true)
	if r := first.ask(t, question); r.status != http.StatusServiceUnavailable {
		t.Errorf("without a reply: %d %s", r.status, r.text)
	}
	proxy.DropReplies(false)
	var tickets atomic.Int64
	crowd(20, func() {
		if r := second.ask(t, question); r.status != http.StatusOK || r.Ticket == "" {
			t.Errorf("the repeat: %d %s", r.status, r.text)
		} else {
			tickets.Add(1)
		}
	})
	if got := second.peek("once", "u1").left(); got != 9 {
		t.Errorf("%d left after one request, %d tickets: want 9", got, tickets.Load())
	}
	if r := second.ask(t, `{"policy": "p", "attributes": {"user": "u1"}, "request_id": "r1", "cost": 2}`); r.status != http.StatusBadRequest {
		t.Errorf("another cost: %d %s", r.status, r.text)
	}
	if r := second.ask(t, `{"policy": "p", "attributes": {"user": "u1"}, "request_id": "r2"}`); r.status != http.StatusTooManyRequests {
		t.Errorf("another request: %d %s", r.status, r.text)
	}
}
