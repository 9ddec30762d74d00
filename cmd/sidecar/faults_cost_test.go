package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// wantNever checks a refusal that no wait can change.
func (r *reply) wantNever(t *testing.T) {
	t.Helper()
	if r.status != http.StatusTooManyRequests || !r.Never || r.wait() >= 0 || r.header.Get("Retry-After") != "" ||
		r.header.Get("retry-after-ms") != "" || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("got %d %s %v, want never and no Retry-After", r.status, r.text, r.header)
	}
}

// TestFaultZeroLimits: a rate, burst or limit of nothing lets nothing pass. It is neither without
// a limit nor an error.
func TestFaultZeroLimits(t *testing.T) {
	everywhere(t, `
limits:
  - {name: no-rate, rate: 0/s, burst: 1, key: [user]}
  - {name: no-burst, rate: 1/s, burst: 0, key: [user]}
  - {name: neither, rate: 0/m, key: [user]}
  - {name: no-refill, refill: {every: 1s, tokens: 0}, burst: 5, key: [user]}
  - {name: denied, rate: 5/s, key: [user], overrides: [{when: {user: "*"}, deny: true}]}
`, func(s *site) {
		for _, name := range []string{"no-rate", "no-burst", "neither", "no-refill", "denied"} {
			for range 3 {
				r := s.take(name, "u1", 1)
				r.wantNever(s.t)
				if r.left() != 0 {
					s.t.Errorf("%s: got %s, want 0 left", name, r.text)
				}
			}
			if r := s.peek(name, "u1"); r.status != http.StatusOK || r.left() != 0 {
				s.t.Errorf("%s: status %d %s, want 0 left", name, r.status, r.text)
			}
		}
		if keys := s.keys(); len(keys) > 0 {
			s.t.Errorf("left in Redis: %v", keys)
		}
	})
}

// TestFaultNegativeNumbers: below zero nothing is taken for "without a limit".
func TestFaultNegativeNumbers(t *testing.T) {
	for _, limit := range []string{"rate: -5/s", "rate: 5/s, burst: -5", "rate: 5/-1s", "rate: 5/0s", "refill: {every: 1s, tokens: -1}", "rate: 5/s, default_cost: -1"} {
		file := writeConfig(t, "limits: [{name: a, "+limit+"}]")
		got := sidecar(t, "validate", file)
		if got.code != 1 || !strings.HasPrefix(got.stderr, file+":1:") {
			t.Errorf("%s: got code %d, %q, want a refusal with its place", limit, got.code, got.stderr)
		}
	}
}

// TestFaultPeekCharges: cost 0 reads and takes nothing; a negative cost gives nothing back.
func TestFaultPeekCharges(t *testing.T) {
	everywhere(t, `
limits:
  - {name: three, rate: 3/h, burst: 3, key: [user]}
`, func(s *site) {
		for range 10 {
			if r := s.take("three", "u1", 0); r.status != http.StatusOK || r.left() != 3 {
				s.t.Errorf("got %d %s, want 3 left", r.status, r.text)
			}
			if r := s.peek("three", "u1"); r.left() != 3 {
				s.t.Errorf("got %d %s, want 3 left", r.status, r.text)
			}
		}
		if keys := s.keys(); len(keys) > 0 {
			s.t.Errorf("reading made the keys %v", keys)
		}
		s.wantPass(3, 0, "three", "u1")
		for _, cost := range []string{"-1", "-3", `{"requests": -3}`, "-9007199254740992", "-0.5", "1e1"} {
			if r := s.ask(s.t, `{"limit": "three", "key": "u1", "cost": `+cost+`}`); r.status != http.StatusBadRequest {
				s.t.Errorf("cost %s: got %d %s, want 400", cost, r.status, r.text)
			}
		}
		s.wantPass(0, 0, "three", "u1")
	})
}

// TestFaultCostAboveCapacity: such a cost neither waits nor passes nor spoils what is there, and
// says that it never can; nor does a denied one that could pass later.
func TestFaultCostAboveCapacity(t *testing.T) {
	everywhere(t, `
limits:
  - {name: hundred, rate: 100/h, burst: 100, key: [user]}
  - {name: second, rate: 1/s, burst: 1, key: [user]}
policies:
  both: {limits: [hundred, second]}
`, func(s *site) {
		s.take("hundred", "u1", 101).wantNever(s.t)
		if r := s.take("hundred", "u1", 100); r.status != http.StatusOK || r.left() != 0 {
			s.t.Errorf("got %d %s, want that the whole limit passes", r.status, r.text)
		}
		s.take("hundred", "u1", 101).wantNever(s.t) // now that it is known to be drained
		if r := s.take("hundred", "u1", 100); r.status != http.StatusTooManyRequests || r.Never || r.wait() < 59*time.Minute {
			s.t.Errorf("got %d %s, want a denial for an hour", r.status, r.text)
		}
		s.ask(s.t, `{"policy": "both", "attributes": {"user": "u2"}, "cost": 2}`).wantNever(s.t)
		if r := s.peek("hundred", "u2"); r.left() != 100 {
			s.t.Errorf("a cost that the second limit refuses left %d of 100", r.left())
		}

		// A refused request of 60 leaves the 40 that are there.
		s.take("hundred", "u3", 60)
		for range 3 {
			if r := s.take("hundred", "u3", 60); r.status != http.StatusTooManyRequests {
				s.t.Errorf("got %d %s, want 429", r.status, r.text)
			}
		}
		if r := s.take("hundred", "u3", 40); r.status != http.StatusOK || r.left() != 0 {
			s.t.Errorf("got %d %s, want the 40 that were left", r.status, r.text)
		}

		first := s.take("second", "u4", 1)
		for range 20 {
			s.take("second", "u4", 5).wantNever(s.t)
			s.take("second", "u4", 1)
		}
		// Asking meanwhile would be more refusals, and at last take the token that is waited for.
		time.Sleep(time.Until(first.got.Add(time.Second)))
		if r := s.take("second", "u4", 1); r.status != http.StatusOK {
			s.t.Errorf("after 40 refusals the token is %v late", r.wait())
		}
	})
}

// TestFaultOffByOne: a limit of N lets exactly N pass: on a key that is new, read before, refilled
// after a denial that is still known, and forgotten by a reset.
func TestFaultOffByOne(t *testing.T) {
	sizes := []int64{1, 2, 10}
	var limits strings.Builder
	limits.WriteString("limits:\n")
	for _, n := range sizes {
		fmt.Fprintf(&limits, "  - {name: slow-%d, rate: 1/d, burst: %[1]d, key: [user]}\n", n)
		fmt.Fprintf(&limits, "  - {name: quick-%d, rate: %[1]d/s, burst: %[1]d, key: [user]}\n", n)
	}
	everywhere(t, limits.String(), func(s *site) {
		for _, n := range sizes {
			slow, quick := fmt.Sprintf("slow-%d", n), fmt.Sprintf("quick-%d", n)
			s.wantPass(n, 0, slow, "new")
			s.peek(slow, "read")
			s.wantPass(n, 0, slow, "read")
			s.wantPass(n, float64(n), quick, "u1")

			reset, err := http.Post("http://"+s.addr("admin")+"/v1/reset", "application/json",
				strings.NewReader(fmt.Sprintf(`{"limit": %q, "attributes": {"user": "new"}}`, slow)))
			if err != nil {
				s.t.Fatal(err)
			}
			_ = reset.Body.Close()
			s.wantPass(n, 0, slow, "new")
		}
		// Half of the refill, then the rest of it, untouched: asking would charge, or tell the local tier more.
		time.Sleep(500 * time.Millisecond)
		for _, n := range sizes {
			s.peek(fmt.Sprintf("quick-%d", n), "u1") // so that the local tier still knows the key
		}
		time.Sleep(550 * time.Millisecond)
		for _, n := range sizes {
			s.wantPass(n, float64(n), fmt.Sprintf("quick-%d", n), "u1")
		}
	})
}
