package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/httpapi"
	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// slotTTL is how long a slot of the limit "brief" lives.
const slotTTL = 400 * time.Millisecond

// realRules are limits of several algorithms: what a minute gives is nothing within a test.
func realRules(t testing.TB) *limit.Rules {
	t.Helper()
	must := func(s limit.Settings, err error) limit.Settings {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	leaky := func(rate string) limit.Settings {
		s := bucket(t, rate, 1)
		s.Algorithm = limit.LeakyBucketAlgorithm
		return s
	}
	rate, err := limit.ParseRate("1/m")
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, settings limit.Settings) *limit.Limit {
		return &limit.Limit{Name: name, Unit: limit.RequestsUnit, DefaultCost: 1, Key: []string{"user"}, Settings: settings}
	}
	requests, tokens := add("requests", bucket(t, "5/h", 5)), add("tokens", bucket(t, "1000/h", 1000))
	tokens.Unit, tokens.DefaultCost = "tokens", 100
	streams := add("streams", must(limit.NewConcurrency(2, time.Hour.Microseconds())))
	limits := []*limit.Limit{
		requests, tokens, streams,
		add("paced", leaky("10/s")), add("slow", leaky("1/m")),
		add("brief", must(limit.NewConcurrency(1, slotTTL.Microseconds()))),
		add("backlog", must(limit.NewLeakyBucketLog(rate.Rate, 3))),
		add("half-minute", bucket(t, "2/m", 2)),
	}
	rules, err := limit.NewRules("rl", nil, limits, []*limit.Policy{
		{Name: "chat", Limits: []*limit.Limit{requests, tokens}},
		{Name: "stream", Limits: []*limit.Limit{tokens, streams}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rules.TicketTTL, rules.RequestIDTTL = time.Hour, time.Minute
	return rules
}

// startReal runs a server over the store that is in this process.
func startReal(t *testing.T, change func(*httpapi.Config)) *sidecar {
	t.Helper()
	memory, err := local.NewMemory(local.MemoryConfig{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, func(c *httpapi.Config) {
		c.Limiter = newLimiterWith(t, memory, realRules(t))
		if change != nil {
			change(c)
		}
	})
}

// decision is what a test looks at in an answer.
type decision struct {
	Allowed bool
	Settled *bool
	Ticket  string
	Limits  []struct {
		Name             string
		Remaining        int64
		Debt             int64
		RetryAfterMillis int64             `json:"retry_after_ms"`
		ResetAfterMillis int64             `json:"reset_after_ms"`
		Holders          []json.RawMessage `json:"holders"`
		Waiting          []json.RawMessage `json:"waiting"`
	}
}

// left returns what is left of each limit, in order.
func (d decision) left() string {
	var left []int64
	for _, l := range d.Limits {
		left = append(left, l.Remaining-l.Debt)
	}
	return fmt.Sprint(left)
}

// ask puts a question that must be answered with the given status.
func (s *sidecar) ask(t *testing.T, status int, body string) decision {
	t.Helper()
	return s.call(t, status, "/v1/check", body)
}

func (s *sidecar) call(t *testing.T, status int, path, body string) decision {
	t.Helper()
	got := s.do(t, "POST", path, body)
	if got.status != status {
		t.Fatalf("%s %s: got %s, want status %d", path, body, got, status)
	}
	wantHeaders(t, got.header, map[string]string{"Cache-Control": "no-store"})
	return decode[decision](t, got.body)
}

// look returns what is left, as /v1/status says.
func (s *sidecar) look(t *testing.T, query string) decision {
	t.Helper()
	got := s.do(t, "GET", "/v1/status?"+query, "")
	if got.status != 200 {
		t.Fatalf("%s: got %s", query, got)
	}
	return decode[decision](t, got.body)
}

// finishBody returns the body that settles a ticket.
func finishBody(ticket, cost string) string {
	if cost == "" {
		return fmt.Sprintf(`{"ticket":%q}`, ticket)
	}
	return fmt.Sprintf(`{"ticket":%q,"cost":%s}`, ticket, cost)
}
