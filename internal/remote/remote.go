// Package remote is the shared tier: a store on Redis, decided by one Lua script. It is the only
// importer of a Redis client. New dials nothing and starts nothing; connections are made on
// first use, and Run keeps what the sidecars on one Redis share. A call carries what many callers ask and
// may outlive their waits: it runs in a goroutine of the Store's, which Close waits for. Only a lone
// question on a ready connection runs it in its caller's own.
package remote

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/lua"
)

// Config says where Redis is. Addr, Timeout, KeyPrefix, Logger and Registry are required.
type Config struct {
	Addr      string                 // host:port, or the path of a Unix socket, which begins with /
	Username  string                 // empty: the default user
	Password  func() (string, error) // read for each new connection; nil: none
	TLS       *tls.Config            // nil: plain
	Timeout   time.Duration          // of a dial, and of a call that names no earlier deadline
	KeyPrefix string                 // begins every key
	Secret    limit.Secret           // nil: one that all sidecars on this Redis agree on
	Gate      Gate                   // nil: one that is always open
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

// Store decides requests in Redis. It is safe for concurrent use.
type Store struct {
	client  *redis.Client
	cfg     Config
	decider script
	scripts atomic.Pointer[scripts] // as the server's version has them
	clock   clock
	secret  secret
	health  health
	beat    *redis.Script
	node    string                         // names this process in the count of nodes
	nodes   atomic.Pointer[map[string]int] // limit ID → nodes
	metrics *metrics
	calls   sync.Pool // of *call
	asks    sync.Pool // of *ask

	queue    queue
	underWay sync.WaitGroup // goroutines of the Store's that make calls or hand out answers
}

// New returns a Store. It is an error when a metric is already registered.
func New(cfg Config) (*Store, error) {
	s := &Store{
		cfg: cfg, decider: newScript(lua.Decide()), beat: redis.NewScript(lua.Heartbeat()), node: rand.Text(),
	}
	if cfg.Gate == nil {
		s.cfg.Gate = alwaysOpen{}
	}
	s.queue.init(connections, cfg.Timeout, s.tick)
	s.knowVersion(0)
	s.calls.New, s.asks.New = func() any { return new(call) }, newAsk
	s.secret.init(cfg.Secret)
	m, err := newMetrics(cfg.Registry, s.clock.skew)
	if err != nil {
		return nil, fmt.Errorf("remote: register metrics: %w", err)
	}
	s.metrics = m
	s.client = redis.NewClient(s.options())
	return s, nil
}

// Close closes the connections, and returns when the calls under way have failed, and with them what
// waits. Nothing may be asked after it.
func (s *Store) Close() error {
	s.queue.close()
	err := s.client.Close()
	s.underWay.Wait()
	return err
}

// Decide decides requests, each in one atomic step, and fills decisions, which must have been reset. It
// gathers what all callers ask while a call is under way, and sends that in the next one. Requests of one
// call see what earlier ones took. The Err of a decision is a limit.StoreError when there is no answer to
// its request: then the charges may or may not have been made. A request whose deadline passes in Redis
// before its turn is charged nothing, and is asked again while time lasts. The wait for a request ends
// at its deadline, and when ctx does; the call goes on for the others.
func (s *Store) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) {
	if len(requests) == 0 {
		return
	}
	now := time.Now()
	a := s.asks.Get().(*ask)
	a.fill(requests, decisions, now.Add(s.cfg.Timeout))
	switch f := s.queue.join(a, now); {
	case f == nil:
	case ctx.Done() == nil && s.warm():
		s.escort(f, a.last())
	default:
		s.underWay.Go(func() { s.fly(f) })
	}
	s.await(ctx, a)
	if !a.stray {
		clear(a.items)
		s.asks.Put(a)
	}
}

// await returns when all of a is answered, which the end of ctx sees to.
func (s *Store) await(ctx context.Context, a *ask) {
	ended := ctx.Done()
	if ended == nil {
		<-a.done
		return
	}
	select {
	case <-a.done:
	case <-ended:
		gone, abandoned := s.queue.leave(a)
		s.part(gone, abandoned, limit.FailureCanceled, context.Canceled)
		<-a.done
	}
}

// tick ends the waits that are over, and lets a call leave beside one that is slow.
func (s *Store) tick() {
	gone, abandoned, next := s.queue.tick(time.Now())
	s.part(gone, abandoned, limit.FailureTimeout, context.DeadlineExceeded)
	if next != nil {
		s.underWay.Go(func() { s.fly(next) })
	}
}

// blame returns why a call got no answer that was asked for at start: err, unless it only waited too long
// to be sent, for its turn or for a connection, while Redis answered others. A call that is sent in
// the last half of its time is not sent in time.
func (s *Store) blame(err error, start time.Time, inTime bool) error {
	if !inTime && errors.Is(err, context.DeadlineExceeded) && s.clock.heardSince(start) {
		return errOverload
	}
	return err
}

// failed counts err and wraps it for the caller. A charging call that was sent and got no reply is
// in doubt: the charge may have been made.
func (s *Store) failed(err error, charging bool) error {
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("remote: decide: %w: %w", limit.ErrUnavailable, err)
	}
	failure := failureOf(err)
	s.metrics.errors.WithLabelValues(string(failure)).Inc()
	if charging && !isReply(err) {
		s.metrics.ambiguous.Inc()
	}
	return &limit.StoreError{Failure: failure, Err: err}
}
