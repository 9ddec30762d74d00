package main_test

import (
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// policies has a limit of each policy for the time without Redis, and a policy of all three.
const policies = `
limits:
  - {name: open, rate: 50/h, burst: 50, key: [user], on_redis_failure: open}
  - {name: closed, rate: 50/h, burst: 50, key: [user], on_redis_failure: closed}
  - {name: local, rate: 50/h, burst: 50, key: [user]}
policies:
  all: {limits: [open, closed, local]}
`

// wantDegraded checks what each policy answers while Redis does not: soon, without a trace of a
// decision by Redis, and never as if a limit had been reached.
func (s *site) wantDegraded() {
	s.t.Helper()
	for _, name := range []string{"open", "local"} {
		r := s.take(name, "u1", 1)
		if r.status != http.StatusOK || r.Tier != "fallback" || !r.Degraded || r.header.Get("X-Tidegate-Degraded") != "true" {
			s.t.Errorf("%s: got %d %s %v, want a degraded 200", name, r.status, r.text, r.header)
		}
	}
	for _, question := range []string{`{"limit": "closed", "key": "u1"}`, `{"policy": "all", "attributes": {"user": "u1"}}`} {
		r := s.ask(s.t, question)
		if r.status != http.StatusServiceUnavailable || r.Code != "temporary-reduced-capacity" || r.header.Get("Retry-After") != "1" || r.header.Get("RateLimit") != "" {
			s.t.Errorf("%s: got %d %s %v, want 503", question, r.status, r.text, r.header)
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if status, body := get(s.t, "http://"+s.addr("admin")+path); status != http.StatusOK {
			s.t.Errorf("%s: got %d %s, want 200", path, status, body)
		}
	}
}

// wantBack waits until Redis decides, and checks what is left of the closed limit.
func (s *site) wantBack(within time.Duration, left int64) {
	s.t.Helper()
	start := time.Now()
	await(s.t, "Redis decides again", func() bool { return s.peek("closed", "u1").Tier == "redis" })
	if took := time.Since(start); took > within {
		s.t.Errorf("Redis was back after %v, want %v", took, within)
	}
	if r := s.peek("closed", "u1"); r.left() != left {
		s.t.Errorf("%d are left, want %d", r.left(), left)
	}
}

// TestFaultRedisDownAtStart: the sidecar starts, answers by the policies, and finds Redis by itself
// when that comes.
func TestFaultRedisDownAtStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Refuse(true)
	s := &site{t: t, head: listenAnywhere + "nodes: 3\n"}
	s.onRedis(server, proxy.Addr(), "rl", "timeout: 50ms}\nbreaker: {open_for: 500ms")
	s.file = writeConfig(t, s.head, policies)
	begin := time.Now()
	s.process = serve(t, "serve", "--config", s.file)
	s.wantDegraded()
	// All of this within a second, though the race detector slows the start.
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the first answers came %v after the start", took)
	}
	if _, body := s.ready(t); !strings.Contains(body, `"kind":"redis","reachable":false,`) || !strings.Contains(body, "refused") {
		t.Errorf("readyz does not say why Redis is away: %s", body)
	}
	passed, _ := s.count(30, "local", "u2")
	if passed != 16 {
		t.Errorf("%d passed on the share of one of three nodes, want 16 of 50", passed)
	}
	proxy.Refuse(false)
	s.wantBack(1500*time.Millisecond+slackTime, 50)
}

// slackTime is what a busy machine may add to the times that are promised.
const slackTime = time.Second

// TestFaultFrozenRedis: a Redis that accepts and says nothing holds nobody up for longer than
// redis.timeout, is charged nothing late, and does not hold up the exit.
func TestFaultFrozenRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSite(t, server, server.Addr(), "timeout: 300ms}\nshutdown_timeout: 2s\nbreaker: {open_for: 500ms", policies)
	s.take("closed", "u1", 1)
	server.Pause()
	var worst time.Duration
	for range 10 {
		r := s.ask(t, `{"limit": "closed", "key": "u1"}`)
		worst = max(worst, r.got.Sub(r.sent))
		if r.status != http.StatusServiceUnavailable {
			t.Errorf("got %d %s, want 503", r.status, r.text)
		}
	}
	if worst > 300*time.Millisecond+slackTime {
		t.Errorf("an answer took %v", worst)
	}
	s.wantDegraded()
	server.Resume()
	s.wantBack(1500*time.Millisecond+slackTime, 49)

	server.Pause()
	var group sync.WaitGroup
	group.Go(func() {
		if r := s.ask(t, `{"limit": "closed", "key": "u1"}`); r.status != http.StatusServiceUnavailable {
			t.Errorf("under way at SIGTERM: got %d %s, want 503", r.status, r.text)
		}
	})
	// A request under way shows nowhere until it is answered. Were it not there yet, nobody would answer it.
	time.Sleep(50 * time.Millisecond)
	begin := time.Now()
	s.signal(t, syscall.SIGTERM)
	s.wantExit(t, 0)
	group.Wait()
	if took := time.Since(begin); took > 2*time.Second+slackTime {
		t.Errorf("the exit took %v with a shutdown timeout of 2 s", took)
	}
	server.Resume()
}

// TestFaultLostReplies: what Redis did and could not report is charged once, and said to be in
// doubt; what it does too late is not done again.
func TestFaultLostReplies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := newSite(t, server, proxy.Addr(), "timeout: 200ms}\nbreaker: {failures: 1000, open_for: 200ms", policies)
	s.take("closed", "u1", 1)
	for i, fault := range []func(on bool){
		proxy.DropReplies,
		func(on bool) { proxy.SetDelay(map[bool]time.Duration{true: time.Second}[on]) },
		func(on bool) { proxy.CutReplyAfter(map[bool]int{true: 2, false: -1}[on]) },
	} {
		fault(true)
		if r := s.ask(t, `{"limit": "closed", "key": "u1"}`); r.status != http.StatusServiceUnavailable {
			t.Errorf("fault %d: got %d %s, want 503", i, r.status, r.text)
		}
		fault(false)
		await(t, "Redis decides again", func() bool { return s.peek("closed", "u2").Tier == "redis" })
		if r := s.peek("closed", "u1"); r.left() < 48-int64(i) {
			t.Errorf("fault %d: %d are left, want one less for each question", i, r.left())
		}
	}
	if n := s.metric(t, "tidegate_ambiguous_total"); n < 1 || n > 3 {
		t.Errorf("%v calls are in doubt, want 1 to 3", n)
	}
}

// TestFaultForgottenScripts: a Redis that has lost the script gets it again, and nothing is denied,
// lost or charged twice for it; not in a policy of several limits either.
func TestFaultForgottenScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSite(t, server, server.Addr(), "timeout: 5s}\nbreaker: {open_for: 200ms", policies)
	for i := range int64(10) {
		server.Do(t, "SCRIPT", "FLUSH")
		r := s.ask(t, `{"policy": "all", "attributes": {"user": "u1"}}`)
		if r.status != http.StatusOK || r.Tier != "redis" || len(r.Limits) != 3 {
			t.Fatalf("got %d %s", r.status, r.text)
		}
		for _, l := range r.Limits {
			if l.Remaining == nil || *l.Remaining != 49-i {
				t.Errorf("after %d charges got %s", i+1, r.text)
			}
		}
	}
	server.Restart()
	s.wantBack(1200*time.Millisecond+slackTime, 50) // it has lost its data, too
	if r := s.ask(t, `{"policy": "all", "attributes": {"user": "u1"}}`); r.status != http.StatusOK || r.Tier != "redis" {
		t.Errorf("after a restart got %d %s", r.status, r.text)
	}
}
