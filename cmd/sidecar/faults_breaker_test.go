package main_test

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// TestFaultImpatientClients: clients that hang up say nothing about Redis.
func TestFaultImpatientClients(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := newSite(t, server, proxy.Addr(), "timeout: 1s}\nbreaker: {failures: 3", policies)
	proxy.SetDelay(20 * time.Millisecond)
	const body = `{"limit": "closed", "key": "u1"}`
	crowd(200, func() {
		conn, err := net.Dial("tcp", s.addr("http"))
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		time.Sleep(time.Millisecond)
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	})
	proxy.SetDelay(0)
	if r := s.take("closed", "u2", 1); r.status != http.StatusOK || r.Tier != "redis" {
		t.Errorf("after 200 that hung up got %d %s", r.status, r.text)
	}
	if state, failed := s.metric(t, "tidegate_breaker_state"), s.metric(t, "tidegate_redis_errors_total"); state != 0 || failed > 0 {
		t.Errorf("the breaker is in state %v after %v errors", state, failed)
	}
}

// TestFaultHalfOpenFlood: whatever the traffic, a breaker that tries Redis again lets one call
// through at a time.
func TestFaultHalfOpenFlood(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	stub := redistest.NewStub(t, func(command []string) string {
		switch command[0] {
		case "hello", "HELLO":
			calls.Add(1) // each call dials, for a call that gets no answer closes its connection
		}
		return ""
	})
	const openFor = 400 * time.Millisecond
	s := &site{t: t, head: listenAnywhere}
	s.head += fmt.Sprintf("redis: {addrs: [%q], timeout: 50ms}\nbreaker: {failures: 3, open_for: %v}\n", stub.Addr(), openFor)
	s.process = serve(t, "serve", "--config", writeConfig(t, s.head, policies))
	await(t, "the breaker opens", func() bool {
		s.take("open", "u1", 1)
		return s.metric(t, "tidegate_breaker_state") == 2
	})
	before, begin := calls.Load(), time.Now()
	crowd(30, func() {
		for time.Since(begin) < 2*time.Second {
			if r := s.take("open", "u1", 1); r.status != http.StatusOK || !r.Degraded {
				t.Errorf("got %d %s", r.status, r.text)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	if n, most := calls.Load()-before, int64(time.Since(begin)/openFor)+1; n > most || n < 2 {
		t.Errorf("Redis saw %d calls in %v, want 2 to %d", n, time.Since(begin), most)
	}
}

// TestFaultBreakerForgetsNothing: after each outage the breaker closes by itself, as tolerant as it
// was: a single error opens it neither after that nor in a new process.
func TestFaultBreakerForgetsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := newSite(t, server, proxy.Addr(), "timeout: 5s}\nbreaker: {failures: 4, open_for: 200ms", policies)
	for round := range 2 {
		proxy.Refuse(true)
		await(t, "the breaker opens", func() bool {
			s.take("open", "u1", 1)
			return s.metric(t, "tidegate_breaker_state") == 2
		})
		s.wantDegraded()
		proxy.Refuse(false)
		await(t, "the breaker closes", func() bool {
			s.take("open", "u1", 1)
			return s.metric(t, "tidegate_breaker_state") == 0
		})
		s.wantReachable(t)
		for range 8 { // so that a few errors are less than half of the calls
			s.peek("closed", "u1")
		}
		errors := s.metric(t, "tidegate_redis_errors_total")
		proxy.CutReplyAfter(0)
		await(t, "a single call fails", func() bool {
			s.peek("open", "u1")
			return s.metric(t, "tidegate_redis_errors_total") > errors
		})
		if r := s.peek("closed", "u1"); r.Tier != "redis" || s.metric(t, "tidegate_breaker_state") != 0 {
			t.Errorf("round %d: after one error got %d %s", round+1, r.status, r.text)
		}
	}
	s.signal(t, syscall.SIGTERM)
	s.wantExit(t, 0)
	proxy.Refuse(true)
	again := &site{t: t, head: s.head}
	again.process = serve(t, "serve", "--config", writeConfig(t, s.head, policies))
	again.wantDegraded()
	await(t, "the breaker of a new process opens", func() bool {
		again.take("open", "u1", 1)
		return again.metric(t, "tidegate_breaker_state") == 2
	})
}

// TestFaultExitWaitsForRedis: with a Redis that stands still the exit is in time, though a call to
// Redis could take longer.
func TestFaultExitWaitsForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSite(t, server, server.Addr(), "timeout: 10s}\nshutdown_timeout: 500ms\nbreaker: {failures: 5", policies)
	server.Pause()
	begin := time.Now()
	s.signal(t, syscall.SIGTERM)
	s.wantExit(t, 0)
	if took := time.Since(begin); took > 500*time.Millisecond+slackTime {
		t.Errorf("the exit took %v, want 500 ms at most", took)
	}
	server.Resume()
}
