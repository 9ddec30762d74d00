package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
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
	var rc fasthttp.RequestCtx
	rc.Request.Header.SetMethod("POST")
	rc.Request.SetRequestURI("/v1/check")
	rc.Request.SetBodyString(body)
	b.ReportAllocs()
	for b.Loop() {
		server.Serve(b.Context(), &rc)
		if rc.Response.StatusCode() != 200 {
			b.Fatalf("status %d: %s", rc.Response.StatusCode(), rc.Response.Body())
		}
		rc.Response.Reset()
	}
}
