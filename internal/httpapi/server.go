// Package httpapi is the data plane over HTTP: it reads questions as JSON, puts them to a
// limiter, and writes the decisions as JSON and headers, on a TCP address, a Unix socket, or
// both. Attribute values never reach its logs or its error texts.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/problem"
)

const (
	maxHeader = 16 << 10 // of a request's first line and headers together, in bytes

	// silentGrace is how long a connection that has not said anything yet may still begin a
	// request after the end of ctx.
	silentGrace = 200 * time.Millisecond
)

// Config holds what a Server is made of. A zero field means the default beside it.
type Config struct {
	Limiter  *limiter.Limiter // required
	Address  string           // of the TCP listener, host:port; default none
	Unix     string           // path of the Unix socket; default none
	UnixMode fs.FileMode      // permissions of the socket; default 0660
	Logger   *slog.Logger     // default none

	XRateLimit bool // send X-RateLimit-Limit, -Remaining and -Reset too; default no

	// These are kept to about an eighth of the shortest.
	ReadTimeout  time.Duration // for one whole request, headers and body; default 10s
	WriteTimeout time.Duration // for one whole response; default 10s
	IdleTimeout  time.Duration // between two requests of a connection; default 90s

	ShutdownTimeout time.Duration // from the end of Run's ctx to the end of Run; default 10s
}

func (c Config) withDefaults() Config {
	orDefault := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orDefault(&c.ReadTimeout, 10*time.Second)
	orDefault(&c.WriteTimeout, 10*time.Second)
	orDefault(&c.IdleTimeout, 90*time.Second)
	orDefault(&c.ShutdownTimeout, 10*time.Second)
	if c.UnixMode == 0 {
		c.UnixMode = 0o660
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server answers questions over HTTP. Its methods are to be called by one goroutine: Listen,
// then Run; or Close in place of Run.
type Server struct {
	cfg       Config
	causes    causes
	exchanges sync.Pool // of *exchange
	conns     conns
	listeners []net.Listener
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:    cfg,
		causes: newCauses(cfg.Logger),
	}
	s.exchanges.New = func() any { return new(exchange) }
	return s
}

// Listen opens the listeners. From then on connections are taken, and answered when Run runs. On
// an error none is open. See [ListenUnix] for what is refused at the path of the Unix socket.
func (s *Server) Listen() error {
	if s.cfg.Address != "" {
		l, err := net.Listen("tcp", s.cfg.Address)
		if err != nil {
			return fmt.Errorf("httpapi: listen: %w", err)
		}
		s.listeners = append(s.listeners, newListener(l, &s.conns))
	}
	if s.cfg.Unix != "" {
		l, err := ListenUnix(s.cfg.Unix, s.cfg.UnixMode)
		if err != nil {
			s.Close()
			return err
		}
		s.listeners = append(s.listeners, newListener(l, &s.conns))
	}
	return nil
}

// Addrs returns the addresses listened on: that of the TCP listener first, then the Unix socket.
func (s *Server) Addrs() []net.Addr {
	var addrs []net.Addr
	for _, l := range s.listeners {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// Close closes the listeners of a server that is not to run.
func (s *Server) Close() {
	s.closeListeners()
	s.listeners = nil
}

// closeListeners closes what Listen opened. What it could not remove of a Unix socket is a dead
// file that the next start takes over, so its errors are of no use to anyone.
func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// Run answers requests until ctx ends, then stops accepting, answers everything in flight and
// returns nil, at the latest after ShutdownTimeout, when it cuts the connections that are left. It
// is an error when a listener fails. The end of ctx does not cancel requests in flight, but those
// whose answers are held back, which may be for minutes.
func (s *Server) Run(ctx context.Context) error {
	requests := context.WithoutCancel(ctx)
	waits, stopWaits := context.WithCancelCause(requests)
	server := s.newFastHTTP(lives{requests: requests, waits: waits})
	ended := make(chan error, len(s.listeners))
	var serving, keeping sync.WaitGroup
	keepTimes, stopTimes := context.WithCancel(requests)
	keeping.Go(func() { s.conns.keep(keepTimes, times{s.cfg.ReadTimeout, s.cfg.WriteTimeout, s.cfg.IdleTimeout}) })
	for _, l := range s.listeners {
		serving.Go(func() { ended <- server.Serve(l) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	stopWaits(errStopping)
	s.drain(server)
	serving.Wait()
	stopTimes()
	keeping.Wait()
	if err != nil {
		return fmt.Errorf("httpapi: serve: %w", err)
	}
	return nil
}

// drain closes the listeners, waits until what is in flight has been answered, and closes every
// connection. It closes the listeners by itself, since fasthttp overlooks one whose Serve has
// only just been called.
func (s *Server) drain(server *fasthttp.Server) {
	s.closeListeners()
	timeout, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
	defer cancel()
	// fasthttp gives a connection without a first byte five seconds from its beginning.
	silent := time.AfterFunc(silentGrace, s.conns.closeSilent)
	defer silent.Stop()
	err := server.ShutdownWithContext(timeout)
	cut := s.conns.closeAll()
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Logger.Warn("shutdown timeout: connections cut", "connections", cut)
	}
}

// lives bound how long the requests of a running server may take.
type lives struct {
	requests context.Context // which never ends: each has a deadline, and a context that ends costs every wait
	waits    context.Context // of those whose answers are held back; its end says why
}

func (s *Server) newFastHTTP(l lives) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      func(rc *fasthttp.RequestCtx) { s.serve(l, rc) },
		ErrorHandler:                 s.refuse,
		ConnState:                    noteState,
		Logger:                       serverLog{s.cfg.Logger},
		SecureErrorLogMessage:        true,
		ReadBufferSize:               maxHeader,
		MaxRequestBodySize:           problem.MaxBody,
		CloseOnShutdown:              true,
		LazyRequestTime:              true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
	}
}

// serve answers one request.
func (s *Server) serve(l lives, rc *fasthttp.RequestCtx) {
	arrival := time.Now()
	noteArrived(rc)
	defer s.recover(rc)
	switch string(rc.URI().PathOriginal()) { // as it was sent: only these very paths charge
	case "/v1/check":
		if rc.IsPost() {
			s.check(l, arrival, rc)
		} else {
			s.refuseMethod(rc, "POST")
		}
	case "/v1/finish":
		if rc.IsPost() {
			s.finish(l.requests, arrival, rc)
		} else {
			s.refuseMethod(rc, "POST")
		}
	case "/v1/renew":
		if rc.IsPost() {
			s.renew(l.requests, arrival, rc)
		} else {
			s.refuseMethod(rc, "POST")
		}
	case "/v1/status":
		if rc.IsGet() || rc.IsHead() {
			s.status(l.requests, arrival, rc)
		} else {
			s.refuseMethod(rc, "GET, HEAD")
		}
	default:
		s.fail(rc, errNotFound)
	}
}

// recover keeps a panic of one request from ending every other.
func (s *Server) recover(rc *fasthttp.RequestCtx) {
	if cause := recover(); cause != nil {
		s.cfg.Logger.Error("panic in a request", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
		rc.Response.Reset()
		s.fail(rc, errPanic)
	}
}

// serverLog takes fasthttp's own log lines, which are about single connections.
type serverLog struct{ logger *slog.Logger }

// Printf logs one line.
func (l serverLog) Printf(format string, args ...any) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.logger.Debug("http server", "message", fmt.Sprintf(format, args...))
	}
}
