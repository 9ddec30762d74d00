package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// secretTTL is how long Redis keeps the shared secret without a heartbeat of any sidecar.
const secretTTL = 30 * 24 * time.Hour

// beat is the time between heartbeats.
const beat = time.Second

// secret is the secret in use.
type secret struct {
	fixed   bool // it came from the config
	current atomic.Pointer[limit.Secret]
}

func (s *secret) init(fixed limit.Secret) {
	s.fixed = fixed != nil
	if !s.fixed {
		fixed = make(limit.Secret, 32)
		rand.Read(fixed) // never fails
	}
	s.current.Store(&fixed)
}

// health is what the last heartbeat met.
type health struct {
	last atomic.Pointer[error] // nil: none yet
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

// Run sends a heartbeat every second until ctx ends, and logs when Redis is lost or found again.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		s.note(s.heartbeat(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// note keeps the result of a heartbeat, and logs a change.
func (s *Store) note(err error) {
	before := s.health.last.Swap(&err)
	switch {
	case err != nil && (before == nil || *before == nil):
		s.cfg.Logger.Error("redis is away", slog.String("addr", s.cfg.Addr), slog.String("kind", string(failureOf(err))), slog.Any("error", err))
	case err == nil && (before == nil || *before != nil):
		s.cfg.Logger.Info("redis is reached", slog.String("addr", s.cfg.Addr))
	}
}

// heartbeat asks whether Redis is there, and agrees on the secret: the first sidecar sets its
// own, all take over what is there.
func (s *Store) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.cfg.Timeout, 50*time.Millisecond))
	defer cancel()
	if s.secret.fixed {
		return s.client.Ping(ctx).Err()
	}
	key := s.cfg.KeyPrefix + ":{~secret}:current"
	pipe := s.client.Pipeline()
	pipe.SetNX(ctx, key, hex.EncodeToString(s.Secret()), secretTTL)
	shared := pipe.Get(ctx, key)
	pipe.PExpire(ctx, key, secretTTL)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if text, err := hex.DecodeString(shared.Val()); err == nil && len(text) >= 16 {
		agreed := limit.Secret(text)
		s.secret.current.Store(&agreed)
	}
	return nil
}
