package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// The files faults_*_test.go replay faults that rate limiters are known for, on the built sidecar
// and from outside. docs/faults.md lists them.

// site is a sidecar on one of the stores, as a replay sees it.
type site struct {
	*process
	t      *testing.T
	server *redistest.Server // nil: the embedded store
	state  string            // of every limit: hash or string; empty: the config's default
	prefix string            // of the keys in server
	file   string            // the config
	head   string            // what comes before the limits in it
}

// everywhere runs a replay on the embedded store, and on Redis with either form of state.
func everywhere(t *testing.T, limits string, replay func(s *site)) {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t)
	for _, state := range []string{"embedded", "hash", "string"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t, head: listenAnywhere + "headers: {x_ratelimit: true}\n"}
			if state != "embedded" {
				s.state = state
				s.onRedis(server, server.Addr(), state, "timeout: 10s")
			}
			s.serve(limits)
			replay(s)
		})
	}
}

// newSite starts a sidecar with the given limits on server, which it reaches under addr.
func newSite(t *testing.T, server *redistest.Server, addr, redis, limits string) *site {
	t.Helper()
	s := &site{t: t, head: listenAnywhere}
	s.onRedis(server, addr, "rl", redis)
	s.serve(limits)
	return s
}

func (s *site) onRedis(server *redistest.Server, addr, prefix, settings string) {
	s.server, s.prefix = server, prefix
	s.head += fmt.Sprintf("redis: {addrs: [%q], key_prefix: %s, %s}\n", addr, prefix, settings)
}

// serve starts the sidecar.
func (s *site) serve(limits string) {
	s.t.Helper()
	s.file = writeConfig(s.t, s.head, s.withState(limits))
	s.process = serve(s.t, "serve", "--config", s.file)
	if s.server != nil {
		s.wantReachable(s.t)
	}
}

// withState gives every limit the site's state that can have it.
func (s *site) withState(limits string) string {
	if s.state == "" {
		return limits
	}
	var all strings.Builder
	for line := range strings.Lines(limits) {
		if !strings.Contains(line, "_log") && !strings.Contains(line, "concurrency") { // which have one form
			line = strings.ReplaceAll(line, "{name:", "{state: "+s.state+", name:")
		}
		all.WriteString(line)
	}
	return all.String()
}

// reload puts other limits in force; it is the n-th reload of this sidecar.
func (s *site) reload(n int, limits string) {
	s.t.Helper()
	rewrite(s.t, s.file, s.head, s.withState(limits))
	s.wantMetric(s.t, fmt.Sprintf(`tidegate_config_reloads_total{result="success"} %d`, n))
}

// reply is the answer to one question.
type reply struct {
	status int
	header http.Header
	text   string
	sent   time.Time // before the question left
	got    time.Time // after the answer was there
	decision
	Decisions []decision // of a batch
	Ticket    string
	Settled   bool // of a finish
}

// decision is what an answer's JSON says.
type decision struct {
	Allowed      bool
	Never        bool
	Degraded     bool
	Tier         string
	RetryAfterMS *int64 `json:"retry_after_ms"`
	Limits       []verdict
	Code         string // of a problem
	Status       int
}

// verdict is what it says of one limit.
type verdict struct {
	Name         string
	Allowed      bool
	Limit        int64
	Remaining    *int64
	Debt         int64
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS *int64 `json:"reset_after_ms"`
}

// wait returns how long the answer says to wait.
func (r *reply) wait() time.Duration {
	if r.RetryAfterMS == nil {
		return -1
	}
	return time.Duration(*r.RetryAfterMS) * time.Millisecond
}

// unknown is what is left when that is not said.
const unknown = -1 << 60

// left returns what is left of the only limit, below 0 in debt.
func (r *reply) left() int64 {
	if len(r.Limits) != 1 || r.Limits[0].Remaining == nil || *r.Limits[0].Remaining < 0 {
		return unknown
	}
	return *r.Limits[0].Remaining - r.Limits[0].Debt
}

// reset returns what the answer says of the only limit's time to full, -1 when that is not said.
func (r *reply) reset() time.Duration {
	if len(r.Limits) != 1 || r.Limits[0].ResetAfterMS == nil {
		return -1
	}
	return time.Duration(*r.Limits[0].ResetAfterMS) * time.Millisecond
}

// ask sends a body to /v1/check. Like send, it may be called from any goroutine.
func (p *process) ask(t *testing.T, body string) *reply {
	t.Helper()
	return p.send(t, http.MethodPost, "/v1/check", body)
}

func (p *process) send(t *testing.T, method, path, body string) *reply {
	t.Helper()
	r := &reply{sent: time.Now()}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.addr("http")+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return r
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return r
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	r.status, r.header, r.text, r.got = response.StatusCode, response.Header, string(text), time.Now()
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		t.Errorf("got %d %q: %v", r.status, text, err)
	}
	return r
}

// take asks a limit of one key attribute, which must be decided.
func (s *site) take(limit, key string, cost int64) *reply {
	s.t.Helper()
	r := s.ask(s.t, fmt.Sprintf(`{"limit": %q, "key": %q, "cost": %d}`, limit, key, cost))
	if r.status != http.StatusOK && r.status != http.StatusTooManyRequests {
		s.t.Errorf("%s %s: got %d %s", limit, key, r.status, r.text)
	}
	return r
}

// peek asks what is left of such a limit.
func (s *site) peek(limit, key string) *reply {
	s.t.Helper()
	return s.send(s.t, http.MethodGet, "/v1/status?limit="+limit+"&key="+url.QueryEscape(key), "")
}

// count asks n times one after the other, and returns how many passed in what time.
func (s *site) count(n int, limit, key string) (passed int64, took time.Duration) {
	s.t.Helper()
	start := time.Now()
	for range n {
		if s.take(limit, key, 1).status == http.StatusOK {
			passed++
		}
	}
	return passed, time.Since(start)
}

// wantPass checks that exactly n pass of as many and some more, but for what the rate per second
// gives back meanwhile.
func (s *site) wantPass(n int64, rate float64, limit, key string) {
	s.t.Helper()
	passed, took := s.count(int(n)+3, limit, key)
	if most := n + int64(rate*took.Seconds()); passed < n || passed > most {
		s.t.Errorf("%s %s: %d passed in %v, want %d to %d", limit, key, passed, took, n, most)
	}
}

// crowd calls each n times, from as many callers at once.
func crowd(n int, each func()) {
	var group sync.WaitGroup
	for range n {
		group.Go(each)
	}
	group.Wait()
}

// keys returns the keys of the limits in Redis; none without one.
func (s *site) keys() []string {
	s.t.Helper()
	if s.server == nil {
		return nil
	}
	var keys []string
	for _, key := range s.server.Do(s.t, "KEYS", s.prefix+":*").([]any) {
		if !strings.Contains(key.(string), "{~") { // neither the nodes nor the secret
			keys = append(keys, key.(string))
		}
	}
	return keys
}

// key returns the one key of a limit and value in Redis.
func (s *site) key(limit, value string) string {
	s.t.Helper()
	keys := s.server.Do(s.t, "KEYS", s.prefix+":{"+limit+"~*:"+value+"}").([]any)
	if len(keys) != 1 {
		s.t.Fatalf("%s %s has the keys %v, want one", limit, value, keys)
	}
	return keys[0].(string)
}

// ttl returns a key's time to live; negative as Redis says it.
func (s *site) ttl(key string) time.Duration {
	s.t.Helper()
	return time.Duration(s.server.Do(s.t, "PTTL", key).(int64)) * time.Millisecond
}

// metric returns the sum of the samples whose name and labels begin so.
func (p *process) metric(t *testing.T, prefix string) float64 {
	t.Helper()
	_, text := get(t, "http://"+p.addr("admin")+"/metrics")
	sum := 0.0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && strings.HasPrefix(name, prefix) {
			sum += n
		}
	}
	return sum
}

// await polls until what is said holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTime); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
