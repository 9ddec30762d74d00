// Package admin is the plane for those who run a sidecar: metrics, health, profiles, and
// forgetting a key. It is net/http on listeners that it is given, without a global mux. New
// starts nothing; Run owns every goroutine. No attribute value reaches its logs or its errors.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/limit"
)

// Forgetter drops the state of one limit for the given attributes, as limiter.Limiter does. A
// limit.InvalidError says what is wrong with them, limit.ErrUnknownPolicy that there is no such
// limit, limit.ErrUnavailable that the store did not answer in time.
type Forgetter interface {
	Forget(ctx context.Context, name string, attributes limit.Attributes) error
}

// Build says what is running.
type Build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Commit  string `json:"commit,omitempty"` // empty when the build recorded none
}

// StoreHealth is what /readyz tells about the store.
type StoreHealth struct {
	Kind      string `json:"kind"` // "embedded" or "redis"
	Reachable bool   `json:"reachable"`
	Breaker   string `json:"breaker,omitempty"` // closed, half-open or open; empty without one
	Error     string `json:"error,omitempty"`   // why it is not reachable; shown to anyone who may ask
}

// ConfigHealth is what /readyz tells about the config.
type ConfigHealth struct {
	Source   string    `json:"source"`    // the file, or "built-in example"
	LoadedAt time.Time `json:"loaded_at"` // when what is in force was read
	Limits   int       `json:"limits"`
	Policies int       `json:"policies"`

	Error       string   `json:"error,omitempty"`        // why a newer one is not in force
	NeedRestart []string `json:"need_restart,omitempty"` // settings that differ from those at the start
}

// Health is the detail in the body of /readyz. None of it makes the sidecar unready.
type Health struct {
	Store  StoreHealth
	Config ConfigHealth
}

// Config holds what a Server is made of. A zero field means the default beside it; the others
// are required.
type Config struct {
	Listener        net.Listener // of the whole plane; Run closes it
	MetricsListener net.Listener // of /metrics, /livez and /readyz alone; Run closes it; nil: none
	Gatherer        prometheus.Gatherer
	Limits          Forgetter
	Health          func() Health // called for each /readyz, at any time and concurrently
	Build           Build
	Logger          *slog.Logger
	ShutdownTimeout time.Duration // how long Run waits for answers under way once ctx has ended; default 1s
}

// The server's bounds. Profiles and traces extend their own deadline for writing.
const (
	readHeaderTimeout      = 5 * time.Second
	readTimeout            = 10 * time.Second
	writeTimeout           = 10 * time.Second
	idleTimeout            = 2 * time.Minute
	maxHeaderBytes         = 16 << 10
	defaultShutdownTimeout = time.Second
)

// Server serves the plane. It is safe for concurrent use.
type Server struct {
	cfg      Config
	draining atomic.Bool
}

// New returns a Server. It is ready from the first moment of Run until Drain.
func New(cfg Config) *Server {
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = defaultShutdownTimeout
	}
	return &Server{cfg: cfg}
}

// Drain makes /readyz answer 503 from now on, while everything else goes on. A shutdown begins
// with it.
func (s *Server) Drain() { s.draining.Store(true) }

// Run serves until ctx ends, then waits up to ShutdownTimeout for the answers under way, cuts off
// the rest and returns nil. It returns an error when a listener fails before. It must be called
// once at most; both listeners are closed when it returns.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	s.serve(ctx, group, s.cfg.Listener, s.handler())
	if s.cfg.MetricsListener != nil {
		s.serve(ctx, group, s.cfg.MetricsListener, s.metricsHandler())
	}
	return group.Wait()
}

// serve serves handler on listener as two members of group: the server, and who stops it when ctx
// ends. Requests live on a context of their own, so that the end of ctx cancels none of them.
func (s *Server) serve(ctx context.Context, group *errgroup.Group, listener net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("admin: serve %s: %w", listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		s.Drain()
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
		defer cancel()
		if err := server.Shutdown(wait); err != nil {
			// What is still under way is a profile or a slow reader, nobody's decision.
			s.cfg.Logger.Warn("admin: answers cut off at shutdown", "addr", listener.Addr().String(), "error", err.Error())
			_ = server.Close() // it closes a listener that is closed already
		}
		return nil
	})
}
