package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/admin"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/limiter"
)

// reloads keeps the config in force, and puts the next one there. Safe for concurrent use.
type reloads struct {
	source  string // a file, or builtIn
	hangups chan os.Signal
	watcher *config.Watcher
	limits  *limiter.Limiter
	store   *store
	logger  *slog.Logger
	done    *prometheus.CounterVec
	success prometheus.Gauge

	mu      sync.Mutex
	started *config.Config     // what the settings that need a restart are compared with
	health  admin.ConfigHealth // guarded by mu
}

// newReloads follows file; without one there is nothing to follow. From now until run ends a SIGHUP
// no longer ends the process; one that comes before run is not lost.
func newReloads(file string, logger *slog.Logger) *reloads {
	r := &reloads{
		source:  builtIn,
		hangups: make(chan os.Signal, 1),
		logger:  logger,
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_config_reloads_total",
			Help: "Changed configs that were put in force (success) or refused (failure).",
		}, []string{"result"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidegate_config_last_reload_success_timestamp_seconds",
			Help: "When the config in force was read.",
		}),
	}
	for _, result := range []string{"success", "failure"} {
		r.done.WithLabelValues(result)
	}
	signal.Notify(r.hangups, syscall.SIGHUP)
	if file != "" {
		r.source = file
		r.watcher = config.NewWatcher(file, r.apply, r.reject)
	}
	return r
}

// load reads the config to start with: the file, or the built-in example.
func (r *reloads) load() (*config.Config, error) {
	if r.watcher == nil {
		return config.Builtin(), nil
	}
	return r.watcher.Load()
}

// begin says where later configs go, and that cfg is in force.
func (r *reloads) begin(cfg *config.Config, limits *limiter.Limiter, store *store, registry prometheus.Registerer) error {
	r.started, r.limits, r.store = cfg, limits, store
	r.note(cfg, nil)
	return errors.Join(registry.Register(r.done), registry.Register(r.success))
}

// run follows the file, and SIGHUP, until ctx ends.
func (r *reloads) run(ctx context.Context) error {
	defer signal.Stop(r.hangups)
	if r.watcher == nil {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-r.hangups:
				r.logger.Warn("there is no config file to reload")
			}
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.hangups:
				r.watcher.Reload()
			}
		}
	})
	return r.watcher.Run(ctx)
}

// apply puts a good config in force: its limits and policies for every question from now on.
// Limits that have not changed keep their state in every tier.
func (r *reloads) apply(cfg *config.Config) {
	restart := config.NeedsRestart(r.started, cfg)
	for _, key := range restart {
		// Keys of the old and the new prefix must not be mixed.
		if key == "redis" || key == "redis.key_prefix" {
			r.reject(fmt.Errorf("%s has changed, which needs a restart: nothing of the new config is in force", key))
			return
		}
	}
	r.limits.SetRules(cfg.Rules)
	r.store.nodes.Store(int64(cfg.Nodes))
	r.done.WithLabelValues("success").Inc()
	r.note(cfg, restart)
	attrs := []any{"config", r.source, "limits", len(cfg.Rules.Limits), "policies", len(cfg.Rules.Policies)}
	if len(restart) > 0 {
		r.logger.Warn("config reloaded; some settings need a restart", append(attrs, "need_restart", strings.Join(restart, " "))...)
		return
	}
	r.logger.Info("config reloaded", attrs...)
}

// reject keeps the config in force and says why.
func (r *reloads) reject(err error) {
	r.done.WithLabelValues("failure").Inc()
	r.mu.Lock()
	r.health.Error = err.Error()
	r.mu.Unlock()
	r.logger.Error("config not reloaded: the last good one stays in force", "config", r.source, "error", err.Error())
}

func (r *reloads) note(cfg *config.Config, restart []string) {
	now := time.Now().UTC()
	r.success.Set(float64(now.UnixMilli()) / 1000)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health = admin.ConfigHealth{
		Source:      r.source,
		LoadedAt:    now,
		Limits:      len(cfg.Rules.Limits),
		Policies:    len(cfg.Rules.Policies),
		NeedRestart: restart,
	}
}

// state is what /readyz tells about the config.
func (r *reloads) state() admin.ConfigHealth {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health
}
