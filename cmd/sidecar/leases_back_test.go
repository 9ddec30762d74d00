package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// lendable is leased limits that give nothing back within a test, but for quick, and a strict one.
const lendable = `
limits:
  - {name: one, rate: 1/h, burst: 200, key: [user], mode: leased}
  - {name: two, rate: 1/h, burst: 200, key: [user], mode: leased}
  - {name: closed, rate: 1/h, burst: 200, key: [user], mode: leased, on_redis_failure: closed}
  - {name: quick, rate: 1000/s, burst: 200, key: [user], mode: leased}
  - {name: window, algorithm: fixed_window, limit: 200, window: 1h, key: [user], mode: leased}
  - {name: plain, rate: 1/h, burst: 200, key: [user]}
policies:
  both: {limits: [one, two]}
  mixed: {limits: [one, plain]}
`

// newPair starts two sidecars that hold leases for so long.
func newPair(t *testing.T, hold time.Duration) (a, b *site) {
	t.Helper()
	server := redistest.Start(t)
	settings := fmt.Sprintf("timeout: 10s}\nleases: {hold: %dms", hold.Milliseconds())
	return newSite(t, server, server.Addr(), settings, lendable), newSite(t, server, server.Addr(), settings, lendable)
}

// borrow has the sidecar take tokens of a limit's key on lease, and hand one out. It returns how many passed in
// all, and how many are out. Both are of a key that nobody has used.
func (s *site) borrow(limit, key string) (passed, out int64) {
	s.t.Helper()
	s.take(limit, key, 30) // makes much wanted
	for passed = 31; passed < 50; passed++ {
		if r := s.take(limit, key, 1); r.status == http.StatusOK && r.Tier == "lease" {
			out = s.out(limit, key)
			if out < 2 {
				s.t.Fatalf("%s %s: only %d are out on lease", limit, key, out)
			}
			return passed, out
		}
	}
	s.t.Fatalf("%s %s: nothing is answered from a lease", limit, key)
	return 0, 0
}

// out returns how many tokens of a limit's key are out on lease, as Redis last noted.
func (s *site) out(limit, key string) int64 {
	s.t.Helper()
	sum := int64(0)
	for _, field := range s.server.Do(s.t, "HMGET", s.key(limit, key), "out", "before").([]any) {
		n, err := strconv.ParseInt(fmt.Sprint(field), 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// wantLeft checks what Redis says is left of a limit's key.
func (s *site) wantLeft(limit, key string, left int64) {
	s.t.Helper()
	if r := s.peek(limit, key); r.left() != left || r.Tier != "redis" {
		s.t.Errorf("%s %s: got %s, want %d left", limit, key, r.text, left)
	}
}

// wantTier checks that a request passes, and who let it pass.
func (s *site) wantTier(tier, body string) *reply {
	s.t.Helper()
	r := s.ask(s.t, body)
	if r.status != http.StatusOK || r.Tier != tier || r.Degraded != (tier == "fallback") {
		s.t.Errorf("%s: got %d %s, want 200 by %s", body, r.status, r.text, tier)
	}
	return r
}

// TestLeasesGoBackAtSIGTERM: what a sidecar holds is another's as soon as it has ended.
func TestLeasesGoBackAtSIGTERM(t *testing.T) {
	a, b := newPair(t, time.Minute)
	limits, passed := []string{"one", "window"}, map[string]int64{}
	for _, limit := range limits {
		n, out := a.borrow(limit, "u")
		passed[limit] = n
		b.wantLeft(limit, "u", 200-(n-1)-out)
		if r := b.take(limit, "u", 200-n); r.status != http.StatusTooManyRequests {
			t.Errorf("%s: got %s while %d are out", limit, r.text, out)
		}
	}
	a.signal(t, syscall.SIGTERM)
	a.wantExit(t, 0)
	for _, limit := range limits {
		if r := b.take(limit, "u", 200-passed[limit]); r.status != http.StatusOK {
			t.Errorf("%s: got %s for the rest after the end of who had it on lease", limit, r.text)
		}
		b.wantLeft(limit, "u", 0)
	}
}

// TestLeasesGoBackAfterSIGKILL: what a killed sidecar held is there again within two holds, and not before it
// may no longer hand it out.
func TestLeasesGoBackAfterSIGKILL(t *testing.T) {
	const hold = time.Second
	a, b := newPair(t, hold)
	start := time.Now()
	_, out := a.borrow("quick", "u")
	lent := time.Now()
	a.signal(t, syscall.SIGKILL)
	a.wantExit(t, -1)
	await(t, "the bucket is as full as it gets", func() bool { return b.peek("quick", "u").left() >= 200-out })
	r := b.take("quick", "u", 200)
	if r.status == http.StatusOK && r.got.Sub(start) < hold {
		t.Errorf("all of the burst passes while %d are out", out)
	}
	refill := time.Duration(out+1) * time.Millisecond
	if late := r.sent.Add(r.wait()).Sub(lent.Add(2*hold + refill)); late > time.Millisecond && r.status != http.StatusOK {
		t.Errorf("after a kill all of the burst is to pass in %v, %v later than two holds after the lease", r.wait(), late)
	}
	if r.status == http.StatusTooManyRequests {
		time.Sleep(time.Until(r.got.Add(r.wait()))) // as the client is told to
		if r := b.take("quick", "u", 200); r.status != http.StatusOK {
			t.Errorf("when it should, the burst does not pass: %s", r.text)
		}
	}
}

// TestLeasesGoBackByThemselves: a lease on a key that nobody asks for any more ends without a question, and the
// metrics say what became of it.
func TestLeasesGoBackByThemselves(t *testing.T) {
	const hold = 500 * time.Millisecond
	a, b := newPair(t, hold)
	for _, limit := range []string{"one", "window"} {
		used, unused := `tidegate_lease_tokens_total{use="used"}`, `tidegate_lease_tokens_total{use="unused"}`
		usedBefore, unusedBefore := a.metric(t, used), a.metric(t, unused)
		passed, out := a.borrow(limit, "u")
		lent := time.Now()
		await(t, "what is unused is back", func() bool { return b.peek(limit, "u").left() == 200-passed })
		if took := time.Since(lent); took > hold+slackTime {
			t.Errorf("%s: what is unused was back after %v, want %v", limit, took, hold)
		}
		if n := a.out(limit, "u"); n != 0 {
			t.Errorf("%s: %d are still out", limit, n)
		}
		usedNow, unusedNow := a.metric(t, used)-usedBefore, a.metric(t, unused)-unusedBefore
		if usedNow < 1 || usedNow+unusedNow < float64(out) || unusedNow < float64(out-1) {
			t.Errorf("%s: of %d the metrics say that %v are used and %v unused", limit, out, usedNow, unusedNow)
		}
	}
	if n := a.metric(t, `tidegate_requests_total{policy="",result="allowed",tier="lease"}`); n != 2 {
		t.Errorf("%v requests are counted as answered from a lease, want 2", n)
	}
}

// TestLeasesAndReset: a reset gives back all but what is out on lease.
func TestLeasesAndReset(t *testing.T) {
	a, b := newPair(t, time.Minute)
	for _, limit := range []string{"one", "window"} {
		_, out := a.borrow(limit, "u")
		body := fmt.Sprintf(`{"limit": %q, "attributes": {"user": "u"}}`, limit)
		response, err := http.Post("http://"+b.addr("admin")+"/v1/reset", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			t.Errorf("%s: the reset got %d, want 204", limit, response.StatusCode)
		}
		b.wantLeft(limit, "u", 200-out)
		if r := b.take(limit, "u", 200-out); r.status != http.StatusOK {
			t.Errorf("%s: after a reset got %s", limit, r.text)
		}
		if passed, _ := a.count(int(out)+5, limit, "u"); passed != out-1 {
			t.Errorf("%s: %d pass where %d were on hand", limit, passed, out-1)
		}
	}
}

// TestLeasesAreNotForAll: Redis answers what it must remember, what asks about the state, and policies with a
// strict limit, also while there are tokens on hand.
func TestLeasesAreNotForAll(t *testing.T) {
	a, b := newPair(t, time.Minute)
	passed, out := a.borrow("one", "u")
	left := 200 - (passed - 1) - out
	a.wantLeft("one", "u", left)

	granted := a.wantTier("redis", `{"limit": "one", "key": "u", "cost": 10, "ticket": true}`)
	b.wantLeft("one", "u", left-10)
	finish := fmt.Sprintf(`{"ticket": %q, "cost": 4}`, granted.Ticket)
	if r := b.send(t, http.MethodPost, "/v1/finish", finish); r.status != http.StatusOK || !r.Settled {
		t.Errorf("finish: got %d %s", r.status, r.text)
	}
	left -= 4
	b.wantLeft("one", "u", left)

	for range 2 {
		a.wantTier("redis", `{"limit": "one", "key": "u", "cost": 3, "request_id": "r"}`)
	}
	left -= 3
	b.wantLeft("one", "u", left)
	for range 3 {
		a.wantTier("redis", `{"policy": "mixed", "attributes": {"user": "u"}}`)
	}
	b.wantLeft("one", "u", left-3)
	a.wantTier("lease", `{"limit": "one", "key": "u"}`)
	b.wantLeft("one", "u", left-3)
}

// TestLeasesOfPolicies: a policy of leased limits is answered from leases when each has enough on hand, and all
// are charged, or none.
func TestLeasesOfPolicies(t *testing.T) {
	a, b := newPair(t, time.Minute)
	rng := rand.New(rand.NewPCG(5, 6))
	charged, lent := map[string]int64{}, map[string]int{}
	for range 150 {
		limits, question := []string{"one"}, `"limit": "one", "key": "u"`
		switch rng.IntN(4) {
		case 0:
			limits, question = []string{"two"}, `"limit": "two", "key": "u"`
		case 1, 2:
			limits, question = []string{"one", "two"}, `"policy": "both", "attributes": {"user": "u"}`
		}
		cost := 1 + rng.Int64N(3)
		if r := a.ask(t, fmt.Sprintf(`{%s, "cost": %d}`, question, cost)); r.status == http.StatusOK {
			for _, limit := range limits {
				charged[limit] += cost
			}
			if lent[fmt.Sprint(len(limits), r.Tier)]++; len(r.Limits) != len(limits) {
				t.Errorf("got %s", r.text)
			}
		}
	}
	if lent["2lease"] < 5 || lent["2redis"] == 0 || charged["one"] < 150 {
		t.Errorf("answered: %v, charged: %v: nothing was tested", lent, charged)
	}
	a.signal(t, syscall.SIGTERM)
	a.wantExit(t, 0)
	for _, limit := range []string{"one", "two"} {
		b.wantLeft(limit, "u", 200-charged[limit])
	}
}

// TestLeaseAnswers pins what an answer from a lease says: all that is known to be left.
func TestLeaseAnswers(t *testing.T) {
	a, _ := newPair(t, time.Minute)
	for limit, policy := range map[string]string{"one": `"one";q=200;w=720000`, "window": `"window";q=200;w=3600`} {
		passed, _ := a.borrow(limit, "u")
		r := a.wantTier("lease", fmt.Sprintf(`{"limit": %q, "key": "u"}`, limit))
		passed++
		reset := time.Hour
		if limit == "one" {
			reset *= time.Duration(passed)
		}
		if r.left() != 200-passed || r.Limits[0].Limit != 200 || !r.Limits[0].Allowed || r.RetryAfterMS != nil ||
			r.reset() > reset || r.reset() < reset-waitTime {
			t.Errorf("got %s, want %d left and a reset in %v", r.text, 200-passed, reset)
		}
		rate := fmt.Sprintf(`"%s";r=%d;t=`, limit, 200-passed)
		if got := r.header.Get("RateLimit"); !strings.HasPrefix(got, rate) || r.header.Get("RateLimit-Policy") != policy || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %v, want %s… and %s", r.header, rate, policy)
		}
	}
}

// TestLeasesWhileRedisIsAway: what is on hand goes on being handed out until its lease ends; then each limit does
// what its on_redis_failure says.
func TestLeasesWhileRedisIsAway(t *testing.T) {
	const hold = 3 * time.Second
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	a := newSite(t, server, proxy.Addr(), "timeout: 1s}\nbreaker: {failures: 3}\nleases: {hold: 3s", lendable)
	start := time.Now()
	for _, limit := range []string{"closed", "one"} {
		a.borrow(limit, "u")
	}
	lent := time.Now()
	proxy.Refuse(true)
	for _, limit := range []string{"closed", "one"} {
		var r *reply
		answered := 0
		await(t, "the lease ends", func() bool {
			if r = a.ask(t, fmt.Sprintf(`{"limit": %q, "key": "u"}`, limit)); r.Tier != "lease" {
				return true
			}
			answered++
			if r.sent.After(lent.Add(hold * 98 / 100)) {
				t.Errorf("%s: answered from a lease %v after that was got", limit, r.sent.Sub(lent))
			}
			time.Sleep(hold / 10)
			return false
		})
		if limit == "closed" && (answered < 3 || r.got.Before(start.Add(hold*9/10))) {
			t.Errorf("%d answered from a lease, the last after %v", answered, r.got.Sub(start))
		}
		if limit == "closed" && (r.status != http.StatusServiceUnavailable || r.Code != "temporary-reduced-capacity") {
			t.Errorf("%s: then got %d %s, want 503", limit, r.status, r.text)
		}
		if limit == "one" && (r.status != http.StatusOK || r.Tier != "fallback" || !r.Degraded) {
			t.Errorf("%s: then got %d %s, want a degraded 200", limit, r.status, r.text)
		}
	}
	proxy.Refuse(false)
	await(t, "Redis decides again", func() bool { return a.peek("closed", "u").Tier == "redis" })
}
