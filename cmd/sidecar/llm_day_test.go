package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// The limits of the LLM day: nothing refills within the test, so what is missing at its end is what
// was charged. The window is long, and the day's zone is one where it is about noon.
const llmDay = `
tickets: {ttl: 10m}
limits:
  - {name: requests, algorithm: token_bucket, refill: {every: 1d, tokens: 100000}, key: [tenant]}
  - {name: tokens, algorithm: token_bucket, refill: {every: 1d, tokens: 100000000}, unit: tokens, key: [tenant]}
  - {name: hourly, algorithm: sliding_window_log, limit: 100000000, window: 1d, unit: tokens, key: [tenant]}
  - {name: recent, algorithm: sliding_window, limit: 100000000, window: 1d, unit: tokens, key: [tenant]}
  - {name: daily, algorithm: fixed_window, period: day, timezone: %q, limit: 100000000, unit: tokens, key: [tenant]}
  - {name: in-flight, algorithm: concurrency, limit: %d, ttl: 3s, key: [tenant]}
policies:
  llm: {limits: [requests, tokens, hourly, recent, daily, in-flight]}
`

const (
	dayStreams = 200
	daySlots   = 64
	dayTTL     = 3 * time.Second
)

// day is an LLM gateway's day: streams with estimated costs that are settled when the real ones are
// known, on three sidecars of which one is killed.
type day struct {
	*fleet
	killed  atomic.Bool // the first sidecar may be gone
	granted atomic.Int64
	tokens  atomic.Int64 // what was used, by the account of the streams
	open    atomic.Int64 // streams between their grant and their finish
	most    atomic.Int64 // the most of them at once
	ids     atomic.Int64
}

// noon returns a time zone where it is about noon: no day ends within the test.
func noon() string {
	if ahead := 12 - time.Now().UTC().Hour(); ahead >= 0 {
		return fmt.Sprintf("Etc/GMT-%d", ahead) // which is east of Greenwich
	} else {
		return fmt.Sprintf("Etc/GMT+%d", -ahead)
	}
}

// post asks way in n, which must be given another one when the sidecar is killed meanwhile.
func (d *day) post(n int, path, body string) (status int, answer map[string]any, err error) {
	i := n % len(d.clients)
	response, err := d.clients[i].Post(d.urls[i]+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, answer, err
}

// insist asks until it is answered, of another sidecar each time. Only the killed one may fail. In doubt,
// as after a failure, a denial is no answer: what was asked before may be granted after it.
func (d *day) insist(n int, path, body string, doubt bool) (int, map[string]any) {
	end := time.Now().Add(waitTime)
	for attempt := 0; ; attempt++ {
		status, answer, err := d.post(n+2*attempt, path, body)
		switch {
		case err == nil && status != http.StatusServiceUnavailable && !(doubt && status == http.StatusTooManyRequests):
			return status, answer
		case !d.killed.Load() && err != nil || time.Now().After(end):
			d.t.Errorf("%s: status %d, error %v", path, status, err)
			return status, answer
		}
		doubt = doubt || err != nil
		time.Sleep(5 * time.Millisecond)
	}
}

// stream is one request of the gateway, from its estimate to its real cost.
func (d *day) stream(n int) {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	estimate := rng.Int64N(2000)
	id := fmt.Sprint("s", d.ids.Add(1))
	question := fmt.Sprintf(`{"policy": "llm", "attributes": {"tenant": "acme"}, "cost": {"tokens": %d}, "ticket": true, "request_id": %q}`, estimate, id)
	status, answer := d.insist(n, "/v1/check", question, false)
	if status == http.StatusTooManyRequests {
		return
	}
	ticket, _ := answer["ticket"].(string)
	if status != http.StatusOK || ticket == "" {
		d.t.Errorf("check: status %d, answer %v", status, answer)
		return
	}
	d.granted.Add(1)
	d.tokens.Add(estimate)
	raise(&d.most, d.open.Add(1))
	ends := sync.OnceFunc(func() { d.open.Add(-1) })
	defer ends()
	time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
	switch rng.IntN(10) {
	case 0: // it forgets to finish: the slot frees itself
		return
	case 1: // the same question once more
		if status, again := d.insist(n+1, "/v1/check", question, false); status != http.StatusOK || again["ticket"] == nil {
			d.t.Errorf("the repeat: status %d, answer %v", status, again)
		}
	case 2:
		if status, renewed := d.insist(n+1, "/v1/renew", fmt.Sprintf(`{"ticket": %q}`, ticket), false); status != http.StatusOK {
			d.t.Errorf("renew: status %d, answer %v", status, renewed)
		} else {
			ticket = renewed["ticket"].(string)
		}
	}
	actual := rng.Int64N(4000)
	if rng.IntN(5) == 0 {
		actual = 0 // canceled
	}
	ends() // once it asks to finish, the slot may be another's before the answer is here
	finish := fmt.Sprintf(`{"ticket": %q, "cost": {"tokens": %d}}`, ticket, actual)
	for times := 1 + rng.IntN(2); times > 0; times-- {
		if status, answer := d.insist(n+times, "/v1/finish", finish, false); status != http.StatusOK {
			d.t.Errorf("finish: status %d, answer %v", status, answer)
		}
	}
	d.tokens.Add(actual - estimate)
}

// raise makes most at least n.
func raise(most *atomic.Int64, n int64) {
	for {
		old := most.Load()
		if n <= old || most.CompareAndSwap(old, n) {
			return
		}
	}
}

// streamClient, in the environment of this test binary, makes it one client that asks what it says at
// that address, and then streams for ever.
const streamClient = "TIDEGATE_TEST_STREAM"

// runStreamClient is that client.
func runStreamClient(spec string) int {
	url, body, _ := strings.Cut(spec, " ")
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	select {}
}

// killClients starts clients, kills each at some moment around its question, and then asks the same
// question until it is granted, which leaves it charged once, whenever the first one gets there.
func (d *day) killClients(clients int) {
	self, err := os.Executable()
	if err != nil {
		d.t.Error(err)
		return
	}
	var group sync.WaitGroup
	for i := range clients {
		question := fmt.Sprintf(`{"policy": "llm", "attributes": {"tenant": "acme"}, "cost": {"tokens": 7}, "ticket": true, "request_id": "c%d"}`, i)
		command := exec.Command(self)
		command.Env = append(os.Environ(), streamClient+"="+d.urls[2]+"/v1/check "+question)
		if err := command.Start(); err != nil {
			d.t.Error(err)
			continue
		}
		group.Go(func() {
			time.Sleep(time.Duration(i) * 40 * time.Millisecond)
			_ = command.Process.Kill()
			_ = command.Wait()
			if status, answer := d.insist(4, "/v1/check", question, true); status != http.StatusOK {
				d.t.Errorf("status %d, answer %v", status, answer)
			}
			d.granted.Add(1)
			d.tokens.Add(7)
		})
	}
	group.Wait()
}

// TestLLMDay: requests, tokens in three kinds of limit, and streams in flight in one policy, asked by
// 200 streams with estimates, random real costs, cancellations, repeats, renewals, killed clients and
// a killed sidecar. At the end every counter equals the true sum, and no slot outlives its ttl.
func TestLLMDay(t *testing.T) {
	server := redistest.Start(t)
	d := &day{fleet: newFleet(t, 3, server, fmt.Sprintf(llmDay, noon(), daySlots))}
	var group sync.WaitGroup
	group.Go(func() { d.killClients(10) })
	stop := time.Now().Add(3 * time.Second)
	for n := range dayStreams {
		group.Go(func() {
			for i := 0; time.Now().Before(stop); i++ {
				d.stream(n + 1000*i)
			}
		})
	}
	time.Sleep(time.Second)
	d.killed.Store(true)
	if err := d.processes[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	ended := time.Now()
	d.clients, d.urls = d.clients[2:], d.urls[2:]
	if d.granted.Load() < dayStreams || d.most.Load() > daySlots {
		t.Errorf("%d streams were granted, %d at once; want some, and at most %d at once", d.granted.Load(), d.most.Load(), daySlots)
	}
	used := d.tokens.Load()
	want := map[string]int64{
		"requests": 100_000 - d.granted.Load(), "tokens": 100_000_000 - used, "hourly": 100_000_000 - used,
		"recent": 100_000_000 - used, "daily": 100_000_000 - used,
	}
	left := d.left("llm", "tenant=acme")
	for name, n := range want {
		if left[name] != n {
			t.Errorf("%s: %d left, want %d", name, left[name], n)
		}
	}
	await(t, "every slot is free", func() bool { return d.left("llm", "tenant=acme")["in-flight"] == daySlots })
	if took := time.Since(ended); took > dayTTL+time.Second {
		t.Errorf("a slot with a ttl of %v was held for %v after the last stream", dayTTL, took)
	}
	t.Logf("%d streams granted, %d at once at most, %d tokens used", d.granted.Load(), d.most.Load(), used)
}
