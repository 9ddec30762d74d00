package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// fleet is several sidecars on one Redis, each asked over TCP and over its Unix socket.
type fleet struct {
	t         *testing.T
	processes []*process
	clients   []*http.Client // two for each process
	urls      []string
}

// newFleet starts n sidecars with the given limits on server.
func newFleet(t *testing.T, n int, server *redistest.Server, limits string) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for range n {
		socket := filepath.Join(t.TempDir(), "s")
		p := serve(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0", unix: %q}
redis: {addrs: [%q], timeout: 10s}
`, socket, server.Addr()), limits))
		p.wantReachable(t)
		f.processes = append(f.processes, p)
		unix := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}
		tcp := &http.Transport{MaxIdleConnsPerHost: 100}
		f.clients = append(f.clients, &http.Client{Transport: tcp}, &http.Client{Transport: unix})
		f.urls = append(f.urls, "http://"+p.addr("http"), "http://sidecar")
		t.Cleanup(tcp.CloseIdleConnections)
		t.Cleanup(unix.CloseIdleConnections)
	}
	return f
}

// ask asks one question of the n-th way in, counted round.
func (f *fleet) ask(n int, body string) (status int, answer string) {
	i := n % len(f.clients)
	response, err := f.clients[i].Post(f.urls[i]+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Error(err)
	}
	return response.StatusCode, string(text)
}

// flood asks the same question many times by 50 callers over every way in, and returns how many
// were allowed.
func (f *fleet) flood(requests int, body string) int {
	const callers = 50
	var allowed atomic.Int64
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for i := range requests / callers {
				switch status, answer := f.ask(caller+i, body); status {
				case http.StatusOK:
					allowed.Add(1)
				case http.StatusTooManyRequests:
				default:
					f.t.Errorf("status %d: %s", status, answer)
				}
			}
		})
	}
	group.Wait()
	return int(allowed.Load())
}

// left returns what is left of each limit of a policy.
func (f *fleet) left(policy, query string) map[string]int64 {
	f.t.Helper()
	_, body := get(f.t, f.urls[0]+"/v1/status?policy="+policy+"&"+query)
	var answer struct {
		Limits []struct {
			Name      string
			Remaining int64
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}
	left := map[string]int64{}
	for _, l := range answer.Limits {
		left[l.Name] = l.Remaining
	}
	return left
}

// TestProcessesAdmitExactlyTheLimit: 3 sidecars, 1,500 requests by 50 callers over both
// listeners, a burst of 100 that does not refill meanwhile.
func TestProcessesAdmitExactlyTheLimit(t *testing.T) {
	server := redistest.Start(t)
	for _, state := range []string{"hash", "string"} {
		t.Run(state, func(t *testing.T) {
			server.Do(t, "FLUSHALL")
			f := newFleet(t, 3, server, fmt.Sprintf(`
limits:
  - {name: exact, rate: 1/h, burst: 100, key: [user], state: %[1]s}
  - {name: wide, rate: 1/h, burst: 150, key: [user], state: %[1]s}
  - {name: tight, rate: 1/h, burst: 100, key: [tenant], state: %[1]s}
  - {name: wider, rate: 1/h, burst: 320, unit: tokens, key: [user, tenant], state: %[1]s}
policies:
  three: {limits: [wide, tight, wider]}
`, state))
			if got := f.flood(1500, `{"limit": "exact", "key": "u1"}`); got != 100 {
				t.Errorf("a limit of 100 admitted %d of 1,500", got)
			}
			if got := f.flood(1500, `{"policy": "three", "attributes": {"user": "u1", "tenant": "t1"}, "cost": {"tokens": 3}}`); got != 100 {
				t.Errorf("a policy whose tightest limit is 100 admitted %d of 1,500", got)
			}
			want := map[string]int64{"wide": 50, "tight": 0, "wider": 20}
			if got := f.left("three", "user=u1&tenant=t1"); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("left: %v, want %v: denied requests were charged", got, want)
			}
		})
	}
}

// TestNoBucketRefillsFasterThanItsRate drains a bucket, waits, and counts what passes: its time to
// live must not bring it back early.
func TestNoBucketRefillsFasterThanItsRate(t *testing.T) {
	server := redistest.Start(t)
	f := newFleet(t, 2, server, `
limits:
  - {name: slow, rate: 20/s, burst: 100, key: [user]}
`)
	question := `{"limit": "slow", "key": "u1"}`
	start := time.Now()
	allowed := f.flood(300, question)
	// Asking would take the tokens whose return is measured, and renew the key's time to live.
	time.Sleep(2500 * time.Millisecond)
	allowed += f.flood(300, question)
	most := 100 + int(time.Since(start).Seconds()*20) + 1
	if allowed > most || allowed < 100+2*20 {
		t.Errorf("admitted %d in %v, want 140 to %d", allowed, time.Since(start), most)
	}
}

// everyAlgorithm is a limit of %[1]d for each algorithm, none of which gives anything back within
// the test.
const everyAlgorithm = `
  - {name: token-bucket-%[1]d, algorithm: token_bucket, rate: 1/h, burst: %[1]d, key: [user]}
  - {name: token-bucket-string-%[1]d, algorithm: token_bucket, rate: 1/h, burst: %[1]d, key: [user], state: string}
  - {name: leaky-bucket-%[1]d, algorithm: leaky_bucket, rate: 1/h, burst: %[1]d, key: [user]}
  - {name: leaky-bucket-log-%[1]d, algorithm: leaky_bucket_log, rate: 1/h, capacity: %[1]d, key: [user]}
  - {name: sliding-window-log-%[1]d, algorithm: sliding_window_log, limit: %[1]d, window: 1h, key: [user]}
  - {name: sliding-window-%[1]d, algorithm: sliding_window, limit: %[1]d, window: 1h, key: [user]}
  - {name: sliding-window-string-%[1]d, algorithm: sliding_window, limit: %[1]d, window: 1h, key: [user], state: string}
  - {name: fixed-window-%[1]d, algorithm: fixed_window, limit: %[1]d, window: 1h, key: [user]}
  - {name: fixed-window-string-%[1]d, algorithm: fixed_window, limit: %[1]d, window: 1h, key: [user], state: string}
  - {name: day-%[1]d, algorithm: fixed_window, limit: %[1]d, period: day, timezone: %[2]q, key: [user]}
  - {name: concurrency-%[1]d, algorithm: concurrency, limit: %[1]d, ttl: 1h, key: [user]}
`

// TestEveryAlgorithmAdmitsExactly: 1,000 parallel requests through 3 sidecars admit exactly the limit,
// on a key that nobody knows, none more on one that every sidecar knows to be used up, and exactly the
// limit again once that is forgotten.
func TestEveryAlgorithmAdmitsExactly(t *testing.T) {
	server := redistest.Start(t)
	sizes := []int{1, 2, 10}
	config := "limits:"
	for _, n := range sizes {
		config += fmt.Sprintf(everyAlgorithm, n, noon())
	}
	f := newFleet(t, 3, server, config)
	for _, line := range strings.Split(config, "\n")[1:] {
		_, rest, found := strings.Cut(line, "name: ")
		if !found {
			continue
		}
		name, _, _ := strings.Cut(rest, ",")
		var size int
		if _, err := fmt.Sscan(name[strings.LastIndex(name, "-")+1:], &size); err != nil {
			t.Fatal(err)
		}
		question := fmt.Sprintf(`{"limit": %q, "key": "u"}`, name)
		if got := f.atOnce(1000, question); got != size {
			t.Errorf("%s: admitted %d of 1,000", name, got)
		}
		if got := f.flood(300, question); got != 0 {
			t.Errorf("%s, used up: admitted %d of 300", name, got)
		}
		f.forget(name, "u")
	}
	time.Sleep(1100 * time.Millisecond) // until no sidecar denies from what it knew before
	for _, line := range strings.Split(config, "\n")[1:] {
		if _, rest, found := strings.Cut(line, "name: "); found {
			name, _, _ := strings.Cut(rest, ",")
			question := fmt.Sprintf(`{"limit": %q, "key": "u"}`, name)
			if got := f.flood(300, question); !strings.HasSuffix(name, fmt.Sprint("-", got)) {
				t.Errorf("%s, forgotten: admitted %d of 300", name, got)
			}
		}
	}
}

// forget resets one key of a limit with the key attribute user.
func (f *fleet) forget(name, user string) {
	f.t.Helper()
	body := fmt.Sprintf(`{"limit": %q, "attributes": {"user": %q}}`, name, user)
	response, err := http.Post("http://"+f.processes[0].addr("admin")+"/v1/reset", "application/json", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		f.t.Fatalf("reset: status %d", response.StatusCode)
	}
}

// atOnce asks the same question by so many callers at once, over every way in, and returns how many were
// allowed.
func (f *fleet) atOnce(callers int, body string) int {
	var allowed, n atomic.Int64
	crowd(callers, func() {
		switch status, answer := f.ask(int(n.Add(1)), body); status {
		case http.StatusOK:
			allowed.Add(1)
		case http.StatusTooManyRequests:
		default:
			f.t.Errorf("status %d: %s", status, answer)
		}
	})
	return int(allowed.Load())
}
