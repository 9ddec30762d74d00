package breaker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/breaker"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

// rig is a Store over Redis, of whose calls none takes longer than wait.
type rig struct {
	*breaker.Store
	*breaker.Gate
	registry *prometheus.Registry
	wait     time.Duration
}

const wait = 300 * time.Millisecond

func newRig(t *testing.T, addr string) *rig {
	t.Helper()
	return newRigWithin(t, addr, wait)
}

func newRigWithin(t *testing.T, addr string, wait time.Duration) *rig {
	t.Helper()
	r := &rig{registry: prometheus.NewRegistry(), wait: wait}
	logger := slog.New(slog.DiscardHandler)
	var err error
	r.Gate, err = breaker.NewGate(breaker.GateConfig{OpenFor: time.Hour, Logger: logger, Registry: r.registry})
	if err != nil {
		t.Fatal(err)
	}
	redis, err := remote.New(remote.Config{
		Addr: addr, Gate: r.Gate, Username: "default", Password: func() (string, error) { return "right", nil },
		Timeout: wait, KeyPrefix: "rl", Logger: logger, Registry: r.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	r.Store = breaker.New(redis, &fakeShare{})
	return r
}

// ask asks for one token of an open limit and one of a closed one, by requests of their own.
func (r *rig) ask(ctx context.Context, t *testing.T, keys ...string) (open, closed *limit.Decision) {
	t.Helper()
	bucket, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 3_600_000_000}, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	var requests []limit.Request
	for i, policy := range []limit.FailurePolicy{limit.FailOpen, limit.FailClosed} {
		l := limitOf(policy.String(), policy)
		l.Settings = limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}
		q := request(l)
		q.Deadline = time.Now().Add(r.wait)
		if i < len(keys) {
			q.Charges[0].Key = keys[i]
		}
		requests = append(requests, q)
	}
	open, closed = new(limit.Decision), new(limit.Decision)
	r.Decide(ctx, requests, []*limit.Decision{open, closed})
	return open, closed
}

// errors returns the kinds of redis_errors_total and how often each was counted.
func (r *rig) errors(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "tidegate_redis_errors_total" {
			for _, m := range f.GetMetric() {
				if n := m.GetCounter().GetValue(); n > 0 {
					kinds[m.GetLabel()[0].GetValue()] = n
				}
			}
		}
	}
	return kinds
}

// answers is a server that works but for what EVALSHA is answered.
func answers(t *testing.T, evalsha string) string {
	return redistest.NewStub(t, func(command []string) string {
		switch strings.ToUpper(command[0]) {
		case "HELLO":
			return "*2\r\n" + redistest.Bulk("version") + redistest.Bulk("7.0.0")
		case "TIME":
			return "*2\r\n" + redistest.Bulk("1780000000") + redistest.Bulk("0")
		case "EVALSHA":
			return evalsha
		default:
			return "+OK\r\n"
		}
	}).Addr()
}

// says is a server that answers everything alike.
func says(t *testing.T, reply string) string {
	return redistest.NewStub(t, func([]string) string { return reply }).Addr()
}

// TestEveryFailureCounts is the table of what counts, each against a Redis that is so, or a
// server that answers so: five calls are answered by policy, then none is sent any more.
func TestEveryFailureCounts(t *testing.T) {
	redis := func(t *testing.T, options ...redistest.Option) *redistest.Server {
		return redistest.Start(t, append(options, redistest.WithUsers("default on >right ~* &* +@all"))...)
	}
	after := func(commands ...[]string) func(*testing.T) string {
		return func(t *testing.T) string {
			server := redis(t)
			for _, c := range commands {
				if reply, ok := server.Do(t, c...).(redistest.ReplyError); ok {
					t.Fatalf("%v: %v", c, reply)
				}
			}
			return server.Addr()
		}
	}
	proxied := func(fault func(*redistest.Proxy)) func(*testing.T) string {
		return func(t *testing.T) string {
			proxy := redistest.NewProxy(t, redis(t).Addr())
			fault(proxy)
			return proxy.Addr()
		}
	}
	stub := func(evalsha string) func(*testing.T) string {
		return func(t *testing.T) string { return answers(t, evalsha) }
	}
	always := func(reply string) func(*testing.T) string {
		return func(t *testing.T) string { return says(t, reply) }
	}
	tests := []struct {
		name string
		addr func(*testing.T) string
		want limit.Failure
	}{
		{"timeout, no reply to the call", stub(""), limit.FailureTimeout},
		{"timeout, no reply at all", always(""), limit.FailureTimeout},
		{"timeout, frozen", func(t *testing.T) string { s := redis(t); s.Pause(); return s.Addr() }, limit.FailureTimeout},
		{"timeout, black hole", proxied(func(p *redistest.Proxy) { p.BlackHole(true) }), limit.FailureTimeout},
		{"timeout, too slow", proxied(func(p *redistest.Proxy) { p.SetDelay(2 * wait) }), limit.FailureTimeout},
		{"timeout, replies lost", proxied(func(p *redistest.Proxy) { p.DropReplies(true) }), limit.FailureTimeout},
		{"refused", proxied(func(p *redistest.Proxy) { p.Refuse(true) }), limit.FailureConnection},
		{"reset", func(t *testing.T) string { s := redis(t); s.Kill(); return redistest.NewProxy(t, s.Addr()).Addr() }, limit.FailureConnection},
		{"LOADING", stub("-LOADING Redis is loading the dataset in memory\r\n"), limit.FailureLoading},
		{"LOADING to everything", always("-LOADING Redis is loading the dataset in memory\r\n"), limit.FailureLoading},
		{"READONLY", after([]string{"REPLICAOF", "127.0.0.1", "1"}), limit.FailureReadOnly},
		{"OOM", after([]string{"CONFIG", "SET", "maxmemory", "1"}), limit.FailureMemory},
		{"OOM inside a script, Redis 6.2", stub("-ERR Error running script (call to f_1): @user_script:1: OOM command not allowed when used memory > 'maxmemory'.\r\n"), limit.FailureMemory},
		{"BUSY", busy(redis), limit.FailureBusy},
		{"MASTERDOWN", after([]string{"CONFIG", "SET", "replica-serve-stale-data", "no"}, []string{"REPLICAOF", "127.0.0.1", "1"}), limit.FailureMasterDown},
		{"CLUSTERDOWN", func(t *testing.T) string { return redis(t, redistest.WithArgs("--cluster-enabled", "yes")).Addr() }, limit.FailureClusterDown},
		{"NOAUTH", stub("-NOAUTH Authentication required.\r\n"), limit.FailureAuth},
		{"WRONGPASS", after([]string{"ACL", "SETUSER", "default", "resetpass", ">other"}), limit.FailureAuth},
		{"NOPERM", after([]string{"ACL", "SETUSER", "default", "-evalsha", "-eval"}), limit.FailureAuth},
		{"NOPERM inside the script", after([]string{"ACL", "SETUSER", "default", "-hmget"}), limit.FailureAuth},
		{"NOPERM inside the script, Redis 7.2", stub("-ERR ACL failure in script: User default has no permissions to run the 'hmget' command script: f_1, on @user_script:1.\r\n"), limit.FailureAuth},
		{"max clients", after([]string{"CONFIG", "SET", "maxclients", "1"}), limit.FailureConnection},
		{"max clients, the reply read", stub("-ERR max number of clients reached\r\n"), limit.FailureOther},
		{"too old for HELLO", func(t *testing.T) string {
			return redistest.NewStub(t, func(command []string) string {
				if strings.EqualFold(command[0], "HELLO") {
					return "-ERR unknown command `HELLO`, with args beginning with:\r\n"
				}
				return "+OK\r\n"
			}).Addr()
		}, limit.FailureUnsupported},
		{"MISCONF", stub("-MISCONF Redis is configured to save RDB snapshots\r\n"), limit.FailureOther},
		{"another error", stub("-ERR something else\r\n"), limit.FailureOther},
		{"a reply without sense", stub("+OK\r\n"), limit.FailureOther},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.addr(t))
			for i := range 6 {
				want := "closed"
				if i >= 5 {
					want = "open"
				}
				if got := r.State(); got != want {
					t.Fatalf("after %d calls the breaker is %s: %v", i, got, r.errors(t))
				}
				open, closed := r.ask(t.Context(), t)
				if open.Err != nil || !open.Degraded || open.Tier != limit.TierFallback {
					t.Errorf("open: %+v", open)
				}
				if !errors.Is(closed.Err, limit.ErrUnavailable) || !closed.Degraded || closed.Tier != limit.TierFallback {
					t.Errorf("closed: %+v", closed)
				}
			}
			if got := r.errors(t); got[string(tt.want)] != 5 || len(got) != 1 {
				t.Errorf("errors by kind: %v, want %s five times", got, tt.want)
			}
		})
	}
}

// busy is a Redis that runs a script without end.
func busy(redis func(*testing.T, ...redistest.Option) *redistest.Server) func(*testing.T) string {
	return func(t *testing.T) string {
		server := redis(t, redistest.WithArgs("--busy-reply-threshold", "1"))
		dial := func() *redistest.Conn {
			conn, err := redistest.Dial(server.Socket())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if reply, err := conn.Do("AUTH", "default", "right"); err != nil || reply != "OK" {
				t.Fatal(reply, err)
			}
			return conn
		}
		watcher := dial()
		if err := dial().Send("EVAL", "while true do end", "0"); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			reply, err := watcher.Do("GET", "x")
			if err != nil || time.Now().After(deadline) {
				t.Fatal(reply, err)
			}
			if failed, ok := reply.(redistest.ReplyError); ok && strings.HasPrefix(string(failed), "BUSY") {
				return server.Addr()
			}
		}
	}
}
