package remote

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// secretTTL is how long Redis keeps the shared secret without a heartbeat of any sidecar.
const secretTTL = 30 * 24 * time.Hour

// beat is the time between heartbeats, nodeLife how long one counts.
const (
	beat     = time.Second
	nodeLife = 5 * time.Second
)

// secret is the secret in use, and the one before it.
type secret struct {
	fixed   bool // it came from the config
	current atomic.Pointer[limit.Secret]
	former  atomic.Pointer[limit.Secret] // nil: none
}

// replace makes agreed the secret in use.
func (s *secret) replace(agreed limit.Secret) {
	if old := s.current.Load(); !bytes.Equal(*old, agreed) {
		s.former.Store(old)
		s.current.Store(&agreed)
	}
}

func (s *secret) init(fixed limit.Secret) {
	s.fixed = fixed != nil
	if !s.fixed {
		fixed = limit.NewSecret()
	}
	s.current.Store(&fixed)
}

// health is what the last heartbeat met.
type health struct {
	last   atomic.Pointer[error] // nil: none yet
	steady time.Time             // since when every heartbeat has reached Redis; belongs to Run
	lower  map[string]time.Time  // limit ID → since when fewer nodes were counted than are kept; belongs to Run
}

// Reachable returns nil when the last heartbeat found Redis, and what it met otherwise.
func (s *Store) Reachable() error {
	if last := s.health.last.Load(); last != nil {
		return *last
	}
	return limit.ErrUnavailable
}

// Secret returns the secret that keys the hashes of attribute values: the configured one, else
// the one that all sidecars on this Redis share; until Redis is reached, one of this process.
func (s *Store) Secret() limit.Secret { return *s.secret.current.Load() }

// Former returns the secret that was in use before Secret, as until Redis was reached: tickets that
// were sealed with it are still good for as long as they live. It is nil when there was none.
func (s *Store) Former() limit.Secret {
	if former := s.secret.former.Load(); former != nil {
		return *former
	}
	return nil
}

// Run sends a heartbeat through the gate every second until ctx ends: it agrees on the secret, says
// that this node is alive for each of limits, and counts the others. It logs when Redis is lost or
// found again, and at the end takes this node out of the count.
func (s *Store) Run(ctx context.Context, limits func() []*limit.Limit) error {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		err := s.guarded(func() error { return s.heartbeat(ctx, limits(), nodeLife) })
		if err != nil {
			s.health.steady = time.Time{}
		}
		s.note(err)
		select {
		case <-ctx.Done():
			s.leave(context.WithoutCancel(ctx), limits())
			return nil
		case <-ticker.C:
		}
	}
}

// leave takes this node out of the count. A node that cannot is out of it within nodeLife.
func (s *Store) leave(ctx context.Context, limits []*limit.Limit) {
	if s.Reachable() != nil {
		return
	}
	if err := s.heartbeat(ctx, limits, 0); err != nil {
		s.cfg.Logger.Warn("this node could not be taken out of the count", slog.Any("error", err))
	}
}

// note keeps the result of a heartbeat, and logs a change.
func (s *Store) note(err error) {
	before := s.health.last.Swap(&err)
	switch {
	case err != nil && (before == nil || *before == nil):
		s.cfg.Logger.Error("redis is away", slog.String("addr", s.cfg.Addr), slog.String("until_it_is_back", "each limit does what its on_redis_failure says"), slog.Any("error", err))
	case err == nil && (before == nil || *before != nil):
		s.cfg.Logger.Info("redis is reached", slog.String("addr", s.cfg.Addr))
	}
}

// heartbeat has no deadline as a whole, since a new connection alone takes several round trips; the
// client gives each of them the timeout, so that as the breaker's probe it fails where requests do.
func (s *Store) heartbeat(ctx context.Context, limits []*limit.Limit, life time.Duration) error {
	if err := s.agree(ctx); err != nil {
		return s.failed(err, false)
	}
	if err := s.count(ctx, limits, life); err != nil {
		return s.failed(err, false)
	}
	if s.health.steady.IsZero() {
		s.health.steady = time.Now()
	}
	return nil
}

// agree makes the shared secret this node's: the first sidecar sets its own, all take over what
// is there.
func (s *Store) agree(ctx context.Context) error {
	if s.secret.fixed {
		return nil
	}
	key := s.cfg.KeyPrefix + ":{~secret}:current"
	pipe := s.client.Pipeline()
	pipe.SetNX(ctx, key, hex.EncodeToString(s.Secret()), secretTTL)
	shared := pipe.Get(ctx, key)
	pipe.PExpire(ctx, key, secretTTL)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if text, err := hex.DecodeString(shared.Val()); err == nil && len(text) >= limit.MinSecret {
		s.secret.replace(text)
	}
	return nil
}

// limitsPerBeat is how many limits one call counts at most, to keep it short in Redis.
const limitsPerBeat = 100

// count says that this node is alive, and keeps how many share each limit. More nodes count at once,
// fewer only when this node's own heartbeats have reached Redis for as long as one counts, since
// while Redis comes and goes those of the others get lost just as its own do; and only at the
// second beat in a row, since a Redis that has lost its state learns of the others within one.
func (s *Store) count(ctx context.Context, limits []*limit.Limit, life time.Duration) error {
	nodes := make(map[string]int, len(limits))
	most := 0
	steady := !s.health.steady.IsZero() && time.Since(s.health.steady) >= life
	for chunk := range slices.Chunk(limits, limitsPerBeat) {
		keys := make([]string, len(chunk))
		for i, l := range chunk {
			keys[i] = s.cfg.KeyPrefix + ":{~nodes}:" + l.ID()
		}
		counts, err := s.beat.Run(ctx, s.client, keys, s.node, life.Microseconds()).Int64Slice()
		if err != nil {
			return err
		}
		for i, n := range counts {
			kept := s.keep(chunk[i], int(n), steady)
			nodes[chunk[i].ID()] = kept
			most = max(most, kept)
		}
	}
	if life > 0 {
		s.nodes.Store(&nodes)
		s.metrics.nodes.Set(float64(most))
	}
	return nil
}

// keep returns how many nodes to keep for a limit of which n were counted.
func (s *Store) keep(l *limit.Limit, n int, steady bool) int {
	before := s.Nodes(l)
	if n >= before {
		delete(s.health.lower, l.ID())
		return n
	}
	since, ok := s.health.lower[l.ID()]
	if !ok {
		if s.health.lower == nil {
			s.health.lower = map[string]time.Time{}
		}
		since = time.Now()
		s.health.lower[l.ID()] = since
	}
	if !steady || time.Since(since) < 2*beat-beat/10 {
		return before
	}
	delete(s.health.lower, l.ID())
	return n
}

// Nodes returns how many nodes shared the limit at the last heartbeat that reached Redis; 0 when
// none has.
func (s *Store) Nodes(l *limit.Limit) int {
	if nodes := s.nodes.Load(); nodes != nil {
		return (*nodes)[l.ID()]
	}
	return 0
}
