package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

func bucket(t testing.TB, rate string, burst int64) limit.Settings {
	t.Helper()
	r, err := limit.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	b, err := limit.NewTokenBucket(r.Rate, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	return limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}
}

func testRules(t testing.TB) *limit.Rules {
	t.Helper()
	add := func(name, rate string, burst int64, key ...string) *limit.Limit {
		return &limit.Limit{
			Name: name, Unit: limit.RequestsUnit, DefaultCost: 1,
			Key: key, Settings: bucket(t, rate, burst),
		}
	}
	user := add("per-user", "1/s", 3, "user")
	tokens := add("tokens", "60000/m", 60000, "tenant")
	tokens.Unit, tokens.DefaultCost = "tokens", 500
	watch := add("watch", "1/h", 1, "user")
	watch.Shadow = true
	gpt := add("gpt", "1/s", 5, "user")
	gpt.When = []limit.Match{{Attribute: "model", Pattern: "gpt-*"}}
	limits := []*limit.Limit{
		user, tokens, watch, gpt,
		add("pair", "1/s", 3, "user", "route"), add("all", "1000000/s", 1_000_000), add("closed", "0/s", 0, "user"),
		add("hourly", "1/h", 1, "user"), add("fast", "10/s", 1, "user"), add("most", "1000000000000000/s", 999_999_999_999_999, "user"),
		add("top", "4503599627370495/s", limit.MaxNumber, "user"), add("quota", "3000000000/d", 3_000_000_000, "user"),
	}
	policies := []*limit.Policy{
		{Name: "chat", Limits: []*limit.Limit{user, tokens}},
		{Name: "shadowed", Limits: []*limit.Limit{user, watch}},
		{Name: "gpt-only", Limits: []*limit.Limit{gpt}},
	}
	rules, err := limit.NewRules("rl", nil, limits, policies)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func newLimiter(t testing.TB, store limiter.Store) *limiter.Limiter {
	t.Helper()
	return newLimiterWith(t, store, testRules(t))
}

func newLimiterWith(t testing.TB, store limiter.Store, rules *limit.Rules) *limiter.Limiter {
	t.Helper()
	secret := limit.Secret("a secret of the tests")
	_, embedded := store.(*local.Memory)
	l, err := limiter.New(limiter.Config{
		Store: store, Embedded: embedded, Secret: func() limit.Secret { return secret }, Timeout: time.Minute,
		Rules: rules, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sidecar is a running server with its store.
type sidecar struct {
	store *fakeStore
	log   *logBuffer
	tcp   string // host:port
	unix  string // path
	stop  context.CancelFunc
	ended chan error // what Run returned
}

// start runs a server on a TCP port and a Unix socket until the test ends.
func start(t *testing.T, change func(*httpapi.Config)) *sidecar {
	t.Helper()
	s := &sidecar{store: newStore(), log: new(logBuffer), unix: socketPath(t), ended: make(chan error, 1)}
	cfg := httpapi.Config{
		Limiter: newLimiter(t, s.store), Address: "127.0.0.1:0", Unix: s.unix,
		Logger: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	server := httpapi.New(cfg)
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	s.tcp = server.Addrs()[0].String()
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	finished := make(chan struct{})
	go func() {
		s.ended <- server.Run(ctx)
		close(finished)
	}()
	t.Cleanup(func() {
		cancel()
		<-finished
	})
	return s
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *sidecar) do(t *testing.T, method, path, body string) answer {
	t.Helper()
	return do(t, http.DefaultClient, method, "http://"+s.tcp+path, body)
}

func (s *sidecar) check(t *testing.T, body string) answer {
	t.Helper()
	return s.do(t, "POST", "/v1/check", body)
}

func do(t *testing.T, client *http.Client, method, url, body string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(text)}
}

// unixClient returns a client that reaches the server at a Unix socket under any host name.
func unixClient(t *testing.T, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// socketPath returns a path that is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "tg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "api.sock")
}

// logBuffer takes log lines from any goroutine.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// wantHeaders compares the named headers; "" stands for a header that is absent.
func wantHeaders(t *testing.T, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		// Get would spell the name in its own way, as Go's client did on reading.
		if g := strings.Join(got.Values(name), " | "); g != value {
			t.Errorf("%s: got %q, want %q", name, g, value)
		}
	}
}

// wantProblem checks that a is a complete problem with the given status, code and field.
func wantProblem(t *testing.T, a answer, status int, code, field string) {
	t.Helper()
	if a.status != status {
		t.Errorf("got status %d, want %d; body %s", a.status, status, a.body)
	}
	wantHeaders(t, a.header, map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "RateLimit": "", "RateLimit-Policy": "",
	})
	p := decode[problem](t, a.body)
	if p.Status != status || p.Code != code || p.Field != field {
		t.Errorf("got status %d, code %q, field %q, want %d, %q, %q", p.Status, p.Code, p.Field, status, code, field)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" {
		t.Errorf("type, title or detail is missing: %s", a.body)
	}
}

type problem struct {
	Type, Title, Code, Detail, Field string
	Status                           int
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }
