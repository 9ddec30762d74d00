package remote_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// TestLostReplyChargesOnce: Redis runs the call, its reply never comes. The caller gets an error
// in time, the charge is made once and counted as in doubt, and nothing is sent again.
func TestLostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := newBench(t, remote.Config{Addr: proxy.Addr(), Timeout: 300 * time.Millisecond})
	l := hourly("lost", 50, limit.HashState)
	b.mustAsk(charge(l, "a", 1))
	proxy.DropReplies(true)
	start := time.Now()
	_, err := b.ask(300*time.Millisecond, charge(l, "a", 1))
	var failure *limit.StoreError
	if !errors.As(err, &failure) || failure.Failure != limit.FailureTimeout || !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("error %v, want a timeout", err)
	}
	if waited := time.Since(start); waited > 5*time.Second {
		t.Errorf("waited for %v", waited)
	}
	proxy.DropReplies(false)
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 48 {
		t.Errorf("after a call with a lost reply %d are left, want 48", d.Verdicts[0].Remaining)
	}
	proxy.CutReplyAfter(3)
	if _, err := b.ask(time.Second, charge(l, "a", 1)); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("reply cut short: error %v", err)
	}
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 47 {
		t.Errorf("after a reply cut short %d are left, want 47", d.Verdicts[0].Remaining)
	}
	if got := b.counter("tidegate_ambiguous_total"); got != 2 {
		t.Errorf("ambiguous_total is %v, want 2", got)
	}
}

// TestFrozenRedisChargesNothingLate: what waited in front of a frozen Redis is charged nothing
// once it runs again.
func TestFrozenRedisChargesNothingLate(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, remote.Config{Addr: server.Addr(), Timeout: 100 * time.Millisecond})
	l := hourly("frozen", 50, limit.HashState)
	b.mustAsk(charge(l, "a", 1))
	server.Pause()
	for range 3 {
		if _, err := b.ask(50*time.Millisecond, charge(l, "a", 1)); !errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("frozen Redis: error %v", err)
		}
	}
	server.Resume()
	if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 49 {
		t.Errorf("after the thaw %d are left, want 49", d.Verdicts[0].Remaining)
	}
}

func TestFailures(t *testing.T) {
	server := redistest.Start(t)
	refused := redistest.NewProxy(t, server.Addr())
	refused.Refuse(true)
	stub := func(reply string) string {
		return redistest.NewStub(t, func([]string) string { return reply }).Addr()
	}
	hello := func(version string) string {
		return redistest.NewStub(t, func(command []string) string {
			if strings.EqualFold(command[0], "HELLO") {
				return "*4\r\n" + redistest.Bulk("server") + redistest.Bulk("redis") + redistest.Bulk("version") + redistest.Bulk(version)
			}
			if strings.EqualFold(command[0], "TIME") {
				return "*2\r\n" + redistest.Bulk("1780000000") + redistest.Bulk("0")
			}
			return "+OK\r\n"
		}).Addr()
	}
	tests := []struct {
		name string
		addr string
		want limit.Failure
	}{
		{"refused", refused.Addr(), limit.FailureConnection},
		{"silent", stub(""), limit.FailureTimeout},
		{"loading", stub("-LOADING Redis is loading the dataset in memory\r\n"), limit.FailureLoading},
		{"busy", stub("-BUSY Redis is busy running a script\r\n"), limit.FailureBusy},
		{"masterdown", stub("-MASTERDOWN Link with MASTER is down\r\n"), limit.FailureMasterDown},
		{"no password given", stub("-NOAUTH Authentication required.\r\n"), limit.FailureAuth},
		{"Redis 5", stub("-ERR unknown command `HELLO`, with args beginning with:\r\n"), limit.FailureUnsupported},
		{"Redis 6.0", hello("6.0.20"), limit.FailureUnsupported},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, remote.Config{Addr: tt.addr, Timeout: 200 * time.Millisecond})
			_, err := b.ask(200*time.Millisecond, charge(hourly("failing", 5, limit.HashState), "a", 1))
			var failure *limit.StoreError
			if !errors.As(err, &failure) || failure.Failure != tt.want {
				t.Errorf("error %v, want the failure %q", err, tt.want)
			}
			if b.counter("tidegate_redis_errors_total") == 0 {
				t.Error("redis_errors_total does not count it")
			}
		})
	}
}

// TestServerRefusals: what a real Redis refuses, by kind; nothing is charged, and it works again
// when the cause is gone.
func TestServerRefusals(t *testing.T) {
	server := redistest.Start(t)
	forms(t, server, func(t *testing.T, state limit.StateForm) {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		l := hourly("refusals", 50, state)
		b.mustAsk(charge(l, "a", 1))
		refusals := []struct {
			want     limit.Failure
			set, end []string
		}{
			{limit.FailureMemory, []string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
			{limit.FailureReadOnly, []string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
			{limit.FailureMasterDown, []string{"CONFIG", "SET", "replica-serve-stale-data", "no"}, []string{"CONFIG", "SET", "replica-serve-stale-data", "yes"}},
		}
		for _, r := range refusals {
			if r.want == limit.FailureMasterDown {
				server.Do(t, "REPLICAOF", "127.0.0.1", "1")
			}
			server.Do(t, r.set...)
			_, err := b.ask(5*time.Second, charge(l, "a", 1))
			server.Do(t, r.end...)
			server.Do(t, "REPLICAOF", "NO", "ONE")
			var failure *limit.StoreError
			if !errors.As(err, &failure) || failure.Failure != r.want {
				t.Errorf("%v: error %v, want the failure %q", r.set, err, r.want)
			}
			if d := b.mustAsk(charge(l, "a", 0)); d.Verdicts[0].Remaining != 49 {
				t.Errorf("after %v %d are left, want 49", r.set, d.Verdicts[0].Remaining)
			}
		}
	})
}
