package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/admin"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/remote"
)

const serveHelp = `Usage: sidecar serve [--config FILE]

Answers requests until SIGTERM or SIGINT, then answers what is under way and exits 0. A second
signal ends it at once. While it serves, logs go to stderr as JSON, one object a line.

Flags:
`

func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var file string
	flags := newFlags("serve")
	flags.StringVar(&file, "config", "", "the config `FILE`; without one, the built-in example is served")
	others, err := parse(flags, serveHelp, args, stdout)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return usageError("serve takes no arguments; the config is --config FILE")
	}
	logger := slog.New(slog.NewJSONHandler(stderr, nil))
	remote.LogTo(logger)
	follow := newReloads(file, logger)
	cfg, err := loadConfig(file, follow.load, stderr)
	if err != nil {
		return err
	}
	s, err := newSidecar(cfg, follow, logger)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	s.logStart()
	if file == "" {
		fmt.Fprint(stdout, s.greeting())
	}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// sidecar is everything that serves, with its listeners open.
type sidecar struct {
	cfg     *config.Config
	reloads *reloads
	build   admin.Build
	logger  *slog.Logger
	store   *store
	limits  *limiter.Limiter
	api     *httpapi.Server
	plane   *admin.Server
	admin   net.Listener
	metrics net.Listener // nil: none
}

// newSidecar puts the parts together and opens the listeners. On an error nothing is left open.
func newSidecar(cfg *config.Config, follow *reloads, logger *slog.Logger) (_ *sidecar, err error) {
	s := &sidecar{cfg: cfg, reloads: follow, build: buildOf(), logger: logger}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.store, err = openStore(cfg, registry, logger); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.store.close())
		}
	}()
	s.limits, err = limiter.New(limiter.Config{
		Store:    s.store,
		Embedded: cfg.Redis == nil,
		Tier:     s.store.tier,
		Leases:   s.store.leases,
		Secret:   s.store.secret,
		Former:   s.store.former,
		Timeout:  s.store.timeout,
		Rules:    cfg.Rules,
		Registry: registry,
	})
	if err != nil {
		return nil, err
	}
	if err := follow.begin(cfg, s.limits, s.store, registry); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	_, rest := s.waits()
	s.plane = admin.New(admin.Config{
		Listener:        s.admin,
		MetricsListener: s.metrics,
		Gatherer:        registry,
		Limits:          s.limits,
		Health:          s.health,
		Build:           s.build,
		Logger:          logger,
		ShutdownTimeout: rest,
	})
	return s, nil
}

// waits divides the time for a shutdown: most of it is for the requests under way, and a rest each
// for the admin plane, which goes after them, and for the store, which goes last.
func (s *sidecar) waits() (api, rest time.Duration) {
	rest = min(time.Second, s.cfg.ShutdownTimeout/10)
	return s.cfg.ShutdownTimeout - 2*rest, rest
}

// listen opens every listener, or none.
func (s *sidecar) listen() (err error) {
	apiWait, _ := s.waits()
	s.api = httpapi.New(httpapi.Config{
		Limiter:         s.limits,
		Address:         s.cfg.Listen.HTTP,
		Unix:            s.cfg.Listen.Unix,
		UnixMode:        s.cfg.Listen.UnixMode,
		Logger:          s.logger,
		XRateLimit:      s.cfg.Headers.XRateLimit,
		ShutdownTimeout: apiWait,
	})
	if err := s.api.Listen(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.api.Close()
		}
	}()
	if s.admin, err = net.Listen("tcp", s.cfg.Listen.Admin); err != nil {
		return fmt.Errorf("listen.admin: %w", err)
	}
	if s.cfg.Listen.Metrics == "" {
		return nil
	}
	if s.metrics, err = net.Listen("tcp", s.cfg.Listen.Metrics); err != nil {
		return errors.Join(fmt.Errorf("listen.metrics: %w", err), s.admin.Close())
	}
	return nil
}

// run serves until ctx ends or a part fails. Then it stops one part after the other: not ready,
// requests under way answered, the admin plane, the store. No part lives on ctx itself, which
// would cancel the very requests that are to be answered.
func (s *sidecar) run(ctx context.Context) error {
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	apiCtx, stopAPI := context.WithCancel(context.Background())
	adminCtx, stopAdmin := context.WithCancel(context.Background())
	storeCtx, stopStore := context.WithCancel(context.Background())
	group.Go(func() error {
		defer stopAdmin()
		return s.api.Run(apiCtx)
	})
	group.Go(func() error {
		defer stopStore()
		return s.plane.Run(adminCtx)
	})
	group.Go(func() error { return s.reloads.run(apiCtx) })
	group.Go(func() error { return s.runStore(storeCtx) })
	group.Go(func() error {
		defer stopAPI()
		select {
		case <-ctx.Done():
		case <-failed.Done():
		}
		s.plane.Drain()
		s.logger.Info("shutting down", "within", s.cfg.ShutdownTimeout.String())
		return nil
	})
	err := group.Wait()
	if err == nil {
		s.logger.Info("stopped")
	}
	return err
}

// runStore runs the store until ctx ends, and closes it. When it then takes too long to say that
// this node has gone, as a Redis that stands still makes it, its connections are cut.
func (s *sidecar) runStore(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.store.run(ctx, func() []*limit.Limit { return s.limits.Rules().Limits }) }()
	select {
	case err := <-ended:
		return errors.Join(err, s.store.close())
	case <-ctx.Done():
	}
	_, wait := s.waits()
	select {
	case err := <-ended:
		return errors.Join(err, s.store.close())
	case <-time.After(wait):
		return errors.Join(s.store.close(), <-ended)
	}
}

// health is the detail of /readyz.
func (s *sidecar) health() admin.Health {
	return admin.Health{Store: s.store.health(), Config: s.reloads.state()}
}

// logStart logs the one line of a start, with the addresses as they are.
func (s *sidecar) logStart() {
	for _, warning := range s.cfg.Warnings {
		s.logger.Warn("config", "warning", warning.String())
	}
	attrs := []any{"version", s.build.Version, "config", s.reloads.source, "store", s.store.health().Kind,
		"limits", len(s.cfg.Rules.Limits), "policies", len(s.cfg.Rules.Policies)}
	for _, addr := range s.api.Addrs() {
		name := "http"
		if addr.Network() == "unix" {
			name = "unix"
		}
		attrs = append(attrs, name, addr.String())
	}
	attrs = append(attrs, "admin", s.admin.Addr().String())
	if s.metrics != nil {
		attrs = append(attrs, "metrics", s.metrics.Addr().String())
	}
	s.logger.Info("listening", attrs...)
}
