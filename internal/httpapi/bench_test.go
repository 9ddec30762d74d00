package httpapi_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/limiter"
	"github.com/tidegate/tidegate/internal/local"
)

// instantStore allows everything without looking at it.
type instantStore struct{}

func (instantStore) Decide(_ context.Context, requests []limit.Request, decisions []*limit.Decision) {
	for i := range requests {
		d := decisions[i]
		d.Tier = limit.TierRedis
		for _, c := range requests[i].Charges {
			d.Verdicts = append(d.Verdicts, limit.Verdict{
				Limit: c.Limit, Settings: c.Settings, Allowed: true, Known: true, Remaining: 41, ResetAfter: 1234567 * time.Microsecond,
			})
		}
	}
}

func (instantStore) Settle(context.Context, *limit.Settlement) (limit.Settled, error) {
	return limit.Settled{}, nil
}
func (instantStore) Forget(context.Context, limit.Charge) error { return nil }

// BenchmarkCheck is one request from its parsed header to its rendered answer, without a network
// and with a store that answers at once.
func BenchmarkCheck(b *testing.B) {
	for name, body := range map[string]string{
		"NoKey":  `{"limit":"all"}`,
		"Key":    `{"limit":"per-user","key":"u42"}`,
		"Policy": `{"policy":"chat","attributes":{"tenant":"acme","user":"u42","model":"gpt-5"},"cost":{"requests":1,"tokens":1200}}`,
	} {
		b.Run(name, func(b *testing.B) { benchmark(b, body) })
	}
}

func benchmark(b *testing.B, body string) {
	server := httpapi.New(httpapi.Config{Limiter: newLimiter(b, instantStore{})})
	rc := request(body)
	b.ReportAllocs()
	for b.Loop() {
		serve(b, server, rc, 200)
	}
}

// request is one as fasthttp has read it.
func request(body string) *fasthttp.RequestCtx {
	rc := new(fasthttp.RequestCtx)
	rc.Request.Header.SetMethod("POST")
	rc.Request.SetRequestURI("/v1/check")
	rc.Request.SetBodyString(body)
	return rc
}

func serve(tb testing.TB, server *httpapi.Server, rc *fasthttp.RequestCtx, status int) {
	rc.Response.Reset()
	server.Serve(tb.Context(), rc)
	if rc.Response.StatusCode() != status {
		tb.Fatalf("status %d: %s", rc.Response.StatusCode(), rc.Response.Body())
	}
}

// denyingStore has nothing left.
type denyingStore struct{ instantStore }

func (denyingStore) Decide(_ context.Context, requests []limit.Request, decisions []*limit.Decision) {
	for i := range requests {
		d := decisions[i]
		d.Tier = limit.TierRedis
		for _, c := range requests[i].Charges {
			d.Verdicts = append(d.Verdicts, limit.Verdict{
				Limit: c.Limit, Settings: c.Settings, Known: true, RetryAfter: time.Hour, ResetAfter: time.Hour,
			})
		}
	}
}

// deniedLocally is a server, and a request that it denies by itself.
func deniedLocally(tb testing.TB) (*httpapi.Server, *fasthttp.RequestCtx) {
	tier, err := local.NewTier(local.TierConfig{Recheck: time.Hour, Registry: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	secret := limit.Secret("a secret of the tests")
	l, err := limiter.New(limiter.Config{
		Store: denyingStore{}, Tier: tier, Secret: func() limit.Secret { return secret }, Timeout: time.Minute,
		Rules: testRules(tb), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	server, rc := httpapi.New(httpapi.Config{Limiter: l}), request(`{"limit":"hourly","key":"u42"}`)
	serve(tb, server, rc, 429) // by the store, which the tier remembers
	serve(tb, server, rc, 429)
	if body := rc.Response.Body(); !bytes.Contains(body, []byte(`"tier":"local"`)) {
		tb.Fatalf("got %s, want that it is denied locally", body)
	}
	return server, rc
}

// BenchmarkLocalDenial is BenchmarkCheck for what is denied without the store.
func BenchmarkLocalDenial(b *testing.B) {
	server, rc := deniedLocally(b)
	b.ReportAllocs()
	for b.Loop() {
		serve(b, server, rc, 429)
	}
}
