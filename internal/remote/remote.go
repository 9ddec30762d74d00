// Package remote is the shared tier: a store on Redis, decided by one Lua script. It is the only
// importer of a Redis client. New dials nothing and starts nothing; connections are made on
// first use, and Run keeps what the sidecars on one Redis share. A call runs in a goroutine of the
// Store's, which may outlive the caller's wait, and which Close waits for.
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
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

// Store decides requests in Redis. It is safe for concurrent use.
type Store struct {
	client  *redis.Client
	cfg     Config
	decider script
	settler atomic.Pointer[script] // as the server's version has it
	clock   clock
	secret  secret
	health  health
	beat    *redis.Script
	node    string                         // names this process in the count of nodes
	nodes   atomic.Pointer[map[string]int] // limit ID → nodes
	metrics *metrics
	calls   sync.Pool // of *call

	turns    chan struct{}  // one for each call under way
	underWay sync.WaitGroup // calls under way
}

// New returns a Store. It is an error when a metric is already registered.
func New(cfg Config) (*Store, error) {
	s := &Store{
		cfg: cfg, decider: newScript(lua.Decide()), beat: redis.NewScript(lua.Heartbeat()), node: rand.Text(),
		turns: make(chan struct{}, connections),
	}
	s.knowVersion(0)
	s.calls.New = func() any { return new(call) }
	s.secret.init(cfg.Secret)
	m, err := newMetrics(cfg.Registry, s.clock.skew)
	if err != nil {
		return nil, fmt.Errorf("remote: register metrics: %w", err)
	}
	s.metrics = m
	s.client = redis.NewClient(s.options())
	return s, nil
}

// Close closes the connections, and returns when the calls under way have failed. No call may
// begin after it.
func (s *Store) Close() error {
	err := s.client.Close()
	s.underWay.Wait()
	return err
}

// maxCharges is how many charges one call of the script carries at most, so that Redis is not
// blocked for more than about a millisecond.
const maxCharges = 128

// Decide decides requests in order, each in one atomic step, and fills decisions, which must have
// been reset. Requests of one call see what earlier ones took. Long lists are split into several
// calls; when one fails, the error is a limit.StoreError: what earlier calls have answered holds
// and has a Tier, the other charges may or may not have been made. A request whose deadline passes
// in Redis before its turn is charged nothing, and is asked again while time lasts; past its
// deadline its Err is a limit.StoreError of FailureTimeout.
func (s *Store) Decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) error {
	for len(requests) > 0 {
		n, charges := 0, 0
		for n < len(requests) && (n == 0 || charges+len(requests[n].Charges) <= maxCharges) {
			charges += len(requests[n].Charges)
			n++
		}
		if err := s.decide(ctx, requests[:n], decisions[:n]); err != nil {
			return err
		}
		requests, decisions = requests[n:], decisions[n:]
	}
	return nil
}

// decide makes one call, and further ones for the requests that the script left alone although they
// are not late by our clock: its reply has set the clock right.
func (s *Store) decide(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) error {
	ctx, cancel := context.WithDeadline(ctx, s.latest(requests))
	defer cancel()
	for {
		untouched, err := s.call(ctx, requests, decisions)
		if err != nil || len(untouched.expired)+len(untouched.outside) == 0 {
			return err
		}
		s.metrics.expired.Add(float64(len(untouched.expired)))
		var again []limit.Request
		var answers []*limit.Decision
		for _, i := range append(untouched.expired, untouched.outside...) {
			if d := requests[i].Deadline; d.IsZero() || time.Now().Before(d) {
				again, answers = append(again, requests[i]), append(answers, decisions[i])
			} else {
				decisions[i].Err = &limit.StoreError{Failure: limit.FailureTimeout, Err: context.DeadlineExceeded}
			}
		}
		if len(again) == 0 {
			return nil
		}
		requests, decisions = again, answers
	}
}

// latest returns when the last of the requests stops waiting.
func (s *Store) latest(requests []limit.Request) time.Time {
	var last time.Time
	for i := range requests {
		if d := requests[i].Deadline; d.After(last) {
			last = d
		} else if d.IsZero() {
			return time.Now().Add(s.cfg.Timeout)
		}
	}
	return last
}

// call makes one call of the script that decides.
func (s *Store) call(ctx context.Context, requests []limit.Request, decisions []*limit.Decision) (alone, error) {
	text, charging, err := s.exchange(ctx, &s.decider, len(requests), func(c *call) { c.pack(0, requests, s.clock.at) })
	if err != nil {
		return alone{}, err
	}
	untouched, err := unpack(text, requests, decisions)
	if err != nil {
		return alone{}, s.failed(err, charging)
	}
	for _, d := range decisions {
		if errors.Is(d.Err, limit.ErrWrongType) {
			s.metrics.errors.WithLabelValues(string(limit.FailureWrongType)).Inc()
		}
	}
	return untouched, nil
}

// Settle does what the settlement says with the charges of its ticket, in one atomic step. Doing it
// again changes nothing. It is limit.ErrExpired when the ticket or, for Renew, a slot has expired, a
// limit.InvalidError when a debt could never be paid, and a limit.StoreError when there is no answer:
// then it may or may not be done.
func (s *Store) Settle(ctx context.Context, settlement *limit.Settlement) (limit.Settled, error) {
	ctx, cancel := context.WithDeadline(ctx, settlement.Deadline)
	defer cancel()
	for {
		text, charging, err := s.exchange(ctx, s.settler.Load(), 1, func(c *call) { c.packSettlement(0, settlement, s.clock.at) })
		if err != nil {
			return limit.Settled{}, err
		}
		answer, again, err := unpackSettled(text, settlement)
		switch {
		case errors.Is(err, errReply):
			return limit.Settled{}, s.failed(err, charging)
		case errors.Is(err, limit.ErrWrongType):
			s.metrics.errors.WithLabelValues(string(limit.FailureWrongType)).Inc()
			return limit.Settled{}, err
		case err != nil || again == 0:
			return answer, err
		case again == codeExpired:
			s.metrics.expired.Inc()
		}
		if err := ctx.Err(); err != nil {
			return limit.Settled{}, &limit.StoreError{Failure: limit.FailureTimeout, Err: err}
		}
	}
}

// exchange sends one call of a script for so many requests, and returns its reply. charging says
// that it may have charged something, so that without a reply that makes sense it is in doubt.
func (s *Store) exchange(ctx context.Context, script *script, requests int, pack func(*call)) (text string, charging bool, err error) {
	start := time.Now()
	if !s.clock.known() {
		// The first connection reads Redis's time, without which no deadline can be given.
		err := s.outlive(ctx, func(ctx context.Context) error { return s.client.Ping(ctx).Err() })
		if err != nil {
			return "", false, s.failed(s.blame(err, start, false), false)
		}
	}
	c := s.calls.Get().(*call)
	pack(c)
	charging = c.charging
	var passage passage
	var replied string // belongs to the call, which may outlive this one, until that has ended
	start = time.Now()
	err = s.outlive(ctx, func(ctx context.Context) (err error) {
		defer s.calls.Put(c)
		replied, err = s.run(ctx, script, c, &passage)
		if r := readReply(replied); err == nil && r.err == nil {
			s.clock.set(r.now, time.Now()) // also when nobody waits any more
		}
		return err
	})
	arrived := time.Now()
	left := !passage.withdraw()
	if left {
		s.metrics.calls.Inc()
		s.metrics.duration.Observe(arrived.Sub(start).Seconds())
		s.metrics.batch.Observe(float64(requests))
	}
	if err != nil {
		deadline, _ := ctx.Deadline()
		inTime := passage.sentBy(deadline.Add(-s.cfg.Timeout / 2))
		return "", false, s.failed(s.blame(err, start, inTime), left && charging)
	}
	return replied, charging, nil
}

// blame returns why a call that began at start got no answer: err, unless it only waited too long
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

// Forget drops the state under the charge's key.
func (s *Store) Forget(ctx context.Context, charge limit.Charge) error {
	if err := s.client.Del(ctx, charge.Key).Err(); err != nil {
		return s.failed(err, false)
	}
	return nil
}
