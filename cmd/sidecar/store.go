package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/admin"
	"github.com/tidegate/tidegate/internal/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
	"github.com/tidegate/tidegate/internal/remote"
)

// embeddedTimeout bounds a request's wait for the store in this process, which never waits long.
const embeddedTimeout = 50 * time.Millisecond

// store is the store that the config asks for, with what belongs to it.
type store struct {
	limiter.Store
	tier    limiter.Tier   // nil: none
	leases  limiter.Leases // nil: none
	run     func(ctx context.Context, limits func() []*limit.Limit) error
	close   func() error
	secret  func() limit.Secret
	former  func() limit.Secret // nil: there never is another
	health  func() admin.StoreHealth
	timeout time.Duration // from a request's arrival to the end of its wait for the store
	nodes   atomic.Int64  // the least number of nodes that share a limit without Redis
}

// openStore makes the store. It reads the files that the config names and is an error when one
// does not fit; it does not wait for Redis.
func openStore(cfg *config.Config, registry prometheus.Registerer, logger *slog.Logger) (*store, error) {
	var secret limit.Secret
	if cfg.SecretFile != "" {
		var err error
		if secret, err = readSecret(cfg.SecretFile); err != nil {
			return nil, err
		}
	}
	if cfg.Redis == nil {
		return openEmbedded(cfg, secret, registry)
	}
	return openRedis(cfg, secret, registry, logger)
}

func openEmbedded(cfg *config.Config, secret limit.Secret, registry prometheus.Registerer) (*store, error) {
	memory, err := local.NewMemory(local.MemoryConfig{MaxKeys: cfg.Local.MaxKeys, Registry: labeled(registry, "embedded")})
	if err != nil {
		return nil, err
	}
	if secret == nil {
		secret = limit.NewSecret()
	}
	return &store{
		Store:   memory,
		run:     func(ctx context.Context, _ func() []*limit.Limit) error { return memory.Run(ctx) },
		close:   func() error { return nil },
		secret:  func() limit.Secret { return secret },
		health:  func() admin.StoreHealth { return admin.StoreHealth{Kind: "embedded", Reachable: true} },
		timeout: embeddedTimeout,
	}, nil
}

func openRedis(cfg *config.Config, secret limit.Secret, registry prometheus.Registerer, logger *slog.Logger) (*store, error) {
	gate, err := breaker.NewGate(breaker.GateConfig{
		Failures: uint32(cfg.Breaker.Failures),
		Window:   cfg.Breaker.Window,
		OpenFor:  cfg.Breaker.OpenFor,
		Logger:   logger,
		Registry: registry,
	})
	if err != nil {
		return nil, err
	}
	settings := remote.Config{
		Addr:      cfg.Redis.Addr,
		Username:  cfg.Redis.Username,
		Timeout:   cfg.Redis.Timeout,
		KeyPrefix: cfg.Redis.KeyPrefix,
		Secret:    secret,
		Gate:      gate,
		Logger:    logger,
		Registry:  registry,
	}
	if file := cfg.Redis.PasswordFile; file != "" {
		settings.Password = func() (string, error) { return readPassword(file) }
		if _, err := settings.Password(); err != nil {
			return nil, err
		}
	}
	if cfg.Redis.TLS != nil {
		if settings.TLS, err = newTLS(cfg.Redis.TLS, cfg.Redis.Addr); err != nil {
			return nil, err
		}
	}
	shared, err := remote.New(settings)
	if err != nil {
		return nil, err
	}
	s := &store{close: shared.Close, secret: shared.Secret, former: shared.Former, timeout: cfg.Redis.Timeout}
	s.nodes.Store(int64(cfg.Nodes))
	shares, err := s.degrade(cfg, shared, registry)
	if err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	leases, err := local.NewLeases(local.LeasesConfig{MaxKeys: cfg.Local.MaxKeys, Timeout: cfg.Redis.Timeout, Registry: registry})
	if err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	s.leases = leases
	s.run = func(ctx context.Context, limits func() []*limit.Limit) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return shares.Run(ctx) })
		group.Go(func() error { return shared.Run(ctx, limits) })
		group.Go(func() error { return leases.Run(ctx, shared) })
		return group.Wait()
	}
	s.health = func() admin.StoreHealth {
		return redisHealth(cmp.Or(gate.Cause(), shared.Reachable()), gate.State())
	}
	return s, nil
}

// degrade puts the local tier and the degradation policy around Redis. It returns the memory of this
// node's shares.
func (s *store) degrade(cfg *config.Config, shared *remote.Store, registry prometheus.Registerer) (*local.Memory, error) {
	tier, err := local.NewTier(local.TierConfig{
		MaxKeys:  cfg.Local.MaxKeys,
		Recheck:  cfg.Local.Recheck,
		Registry: labeled(registry, "mirror"),
	})
	if err != nil {
		return nil, err
	}
	memory, err := local.NewMemory(local.MemoryConfig{MaxKeys: cfg.Local.MaxKeys, Registry: labeled(registry, "fallback")})
	if err != nil {
		return nil, err
	}
	nodes := func(l *limit.Limit) int { return max(int(s.nodes.Load()), shared.Nodes(l)) }
	s.tier, s.Store = tier, breaker.New(shared, local.NewFallback(memory, tier, nodes))
	return memory, nil
}

// labeled tells the metrics of the process's several local stores apart.
func labeled(registry prometheus.Registerer, store string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"store": store}, registry)
}

func redisHealth(err error, state string) admin.StoreHealth {
	if err != nil {
		return admin.StoreHealth{Kind: "redis", Breaker: state, Error: err.Error()}
	}
	return admin.StoreHealth{Kind: "redis", Breaker: state, Reachable: true}
}

// readPassword returns what the file holds, without the line feed that editors end it with.
func readPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("redis.password_file: %w", err)
	}
	return string(bytes.TrimRight(text, "\r\n")), nil
}

// newTLS reads the certificates of a TLS connection to addr.
func newTLS(settings *config.TLS, addr string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: settings.ServerName}
	if c.ServerName == "" {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			c.ServerName = host
		}
	}
	if settings.CAFile != "" {
		text, err := os.ReadFile(settings.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("redis.tls.ca_file: %s holds no PEM certificate", settings.CAFile)
		}
	}
	if settings.CertFile != "" {
		own, err := tls.LoadX509KeyPair(settings.CertFile, settings.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}
