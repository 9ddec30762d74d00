package admin_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/admin"
	"github.com/tidegate/tidegate/internal/limit"
)

// plane is a running Server with the two addresses to reach it at.
type plane struct {
	server   *admin.Server
	admin    string // http://host:port
	metrics  string
	log      *syncBuffer
	stop     context.CancelFunc
	stopped  chan error
	store    *store
	loadedAt time.Time
}

// start runs a Server for the test, and stops it at its end.
func start(t *testing.T, shutdownTimeout time.Duration) *plane {
	t.Helper()
	p := &plane{
		log:      new(syncBuffer),
		stopped:  make(chan error, 1),
		store:    new(store),
		loadedAt: time.Date(2026, 2, 28, 23, 59, 59, 0, time.UTC),
	}
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_test_total", Help: "Of this test."})
	registry.MustRegister(counter)
	counter.Add(7)
	adminListener, metricsListener := listen(t), listen(t)
	p.admin, p.metrics = "http://"+adminListener.Addr().String(), "http://"+metricsListener.Addr().String()
	p.server = admin.New(admin.Config{
		Listener:        adminListener,
		MetricsListener: metricsListener,
		Gatherer:        registry,
		Limits:          p.store,
		Health: func() admin.Health {
			return admin.Health{
				Store:  admin.StoreHealth{Kind: "redis", Error: "no answer"},
				Config: admin.ConfigHealth{Source: "limits.yaml", LoadedAt: p.loadedAt, Limits: 2, Policies: 1},
			}
		},
		Build:           admin.Build{Version: "v1.2.3", Go: "go1.26", Commit: "abc"},
		Logger:          slog.New(slog.NewJSONHandler(p.log, nil)),
		ShutdownTimeout: shutdownTimeout,
	})
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.stopped <- p.server.Run(ctx)
	}()
	t.Cleanup(func() {
		p.stop()
		<-ended
	})
	return p
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// store records what it was asked to forget and answers err.
type store struct {
	mu         sync.Mutex
	name       string           // guarded by mu
	attributes limit.Attributes // guarded by mu
	calls      int              // guarded by mu
	err        error            // guarded by mu

	entered chan struct{} // when not nil: Forget tells its begin, and waits for release
	release chan struct{}
}

func (s *store) Forget(ctx context.Context, name string, attributes limit.Attributes) error {
	if s.entered != nil {
		close(s.entered)
		select {
		case <-s.release:
			return nil
		case <-ctx.Done():
			return &limit.StoreError{Failure: limit.FailureCanceled, Err: ctx.Err()}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.attributes = name, attributes
	s.calls++
	return s.err
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

func TestRoutes(t *testing.T) {
	p := start(t, 0)
	tests := []struct {
		name   string
		method string
		url    string
		status int
		says   string // part of the body
	}{
		{"metrics", "GET", p.admin + "/metrics", 200, "tidegate_test_total 7"},
		{"live", "GET", p.admin + "/livez", 200, `{"status":"ok"}`},
		{"version", "GET", p.admin + "/version", 200, `{"version":"v1.2.3","go":"go1.26","commit":"abc"}`},
		{"profiles", "GET", p.admin + "/debug/pprof/", 200, "goroutine"},
		{"a named profile", "GET", p.admin + "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{"command line", "GET", p.admin + "/debug/pprof/cmdline", 200, "admin.test"},
		{"head", "HEAD", p.admin + "/livez", 200, ""},
		{"unknown path", "GET", p.admin + "/nothing", 404, `"status":404`},
		{"root", "GET", p.admin + "/", 404, "application/problem+json"},
		{"post to a question", "POST", p.admin + "/livez", 405, `"detail":"use GET"`},
		{"get of a reset", "GET", p.admin + "/v1/reset", 405, `"detail":"use POST"`},
		{"options", "OPTIONS", p.admin + "/v1/reset", 405, `"detail":"use POST"`},
		{"metrics outside", "GET", p.metrics + "/metrics", 200, "tidegate_test_total 7"},
		{"live outside", "GET", p.metrics + "/livez", 200, `{"status":"ok"}`},
		{"ready outside", "GET", p.metrics + "/readyz", 200, `"status":"degraded"`},
		{"no profiles outside", "GET", p.metrics + "/debug/pprof/", 404, `"status":404`},
		{"no version outside", "GET", p.metrics + "/version", 404, `"status":404`},
		{"no reset outside", "POST", p.metrics + "/v1/reset", 404, `"status":404`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, tt.method, tt.url, "")
			text := got.body + got.header.Get("Content-Type")
			if got.status != tt.status || !strings.Contains(text, tt.says) {
				t.Errorf("got %d %q, want %d with %q", got.status, text, tt.status, tt.says)
			}
			if cache := got.header.Get("Cache-Control"); cache != "no-store" {
				t.Errorf("got Cache-Control %q, want no-store", cache)
			}
		})
	}
	if got := ask(t, "PUT", p.admin+"/livez", "").header.Get("Allow"); got != "GET, HEAD" {
		t.Errorf("got Allow %q, want GET, HEAD", got)
	}
}

// TestReady pins that the store's troubles are detail, and that a shutdown is not.
func TestReady(t *testing.T) {
	p := start(t, 0)
	const detail = `"store":{"kind":"redis","reachable":false,"error":"no answer"},` +
		`"config":{"source":"limits.yaml","loaded_at":"2026-02-28T23:59:59Z","limits":2,"policies":1}}` + "\n"
	got := ask(t, "GET", p.admin+"/readyz", "")
	if want := `{"status":"degraded",` + detail; got.status != 200 || got.body != want {
		t.Errorf("before the shutdown got %d %s, want 200 %s", got.status, got.body, want)
	}
	p.server.Drain()
	for _, base := range []string{p.admin, p.metrics} {
		got = ask(t, "GET", base+"/readyz", "")
		if want := `{"status":"shutting_down",` + detail; got.status != 503 || got.body != want {
			t.Errorf("after its begin got %d %s, want 503 %s", got.status, got.body, want)
		}
		if got := ask(t, "GET", base+"/livez", ""); got.status != 200 {
			t.Errorf("after its begin /livez got %d, want 200", got.status)
		}
	}
}
