package main_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// herd is sidecars on one Redis and callers who ask them over TCP, each over connections of its own. All
// times are of one monotonic clock, that of this process.
type herd struct {
	t       *testing.T
	members []*member
	callers []*caller
	begin   time.Time
}

// member is one of the sidecars, over all its lives.
type member struct {
	file  string           // the config
	proxy *redistest.Proxy // between it and Redis; nil: none
	life  atomic.Pointer[life]
}

// life is a sidecar from its start to its end.
type life struct {
	*process
	killed atomic.Bool // set before it is: an error of a connection to it means nothing
}

// caller is one client. Its counts are of the whole run, by limit.
type caller struct {
	herd   *herd
	rng    *rand.Rand
	wires  map[*life]*wire
	grants map[string][]grant
	denied map[string]int64 // the cost of what was
}

// wire is a kept connection.
type wire struct {
	net.Conn
	reader *bufio.Reader
}

// grant is an admitted request. It was admitted at some time from sent to got, since the herd's beginning.
type grant struct {
	sent, got time.Duration
	cost      int64
	reset     time.Duration // what the answer said of the time until the limit is as if unused, rounded up to ms
	lease     bool          // it was answered from a lease
}

// newHerd starts sidecars with a config on server, the first so many of them behind a proxy each, and makes
// callers whose choices follow from seed. redis is what the config says of Redis besides its address.
func newHerd(t *testing.T, server *redistest.Server, sidecars, proxies, callers int, seed uint64, redis, config string) *herd {
	t.Helper()
	h := &herd{t: t, begin: time.Now()}
	for i := range sidecars {
		m, addr := new(member), server.Addr()
		if i < proxies {
			m.proxy = redistest.NewProxy(t, addr)
			addr = m.proxy.Addr()
		}
		m.file = writeConfig(t, listenAnywhere, fmt.Sprintf("redis: {addrs: [%q], %s}\n", addr, redis), config)
		m.start(t)
		h.members = append(h.members, m)
	}
	for i := range callers {
		c := &caller{
			herd: h, rng: rand.New(rand.NewPCG(seed, uint64(i))), wires: map[*life]*wire{},
			grants: map[string][]grant{}, denied: map[string]int64{},
		}
		h.callers = append(h.callers, c)
		t.Cleanup(c.close)
	}
	return h
}

// start begins another life.
func (m *member) start(t *testing.T) {
	t.Helper()
	l := &life{process: serve(t, "serve", "--config", m.file)}
	l.wantReachable(t)
	m.life.Store(l)
}

// kill ends a life with SIGKILL.
func (m *member) kill(t *testing.T) {
	t.Helper()
	l := m.life.Load()
	l.killed.Store(true)
	l.signal(t, syscall.SIGKILL)
	l.wantExit(t, -1)
}

// all has every caller do something at once, and returns when that is done.
func (h *herd) all(do func(i int, c *caller)) {
	var group sync.WaitGroup
	for i, c := range h.callers {
		group.Go(func() { do(i, c) })
	}
	group.Wait()
}

// granted returns what all callers were granted of a limit, what that cost, and how much of it was answered
// from leases.
func (h *herd) granted(limit string) (grants []grant, cost, leased int64) {
	for _, c := range h.callers {
		grants = append(grants, c.grants[limit]...)
	}
	for i := range grants {
		cost += grants[i].cost
		if grants[i].lease {
			leased += grants[i].cost
		}
	}
	return grants, cost, leased
}

// deniedOf returns the cost of what all callers were denied of a limit.
func (h *herd) deniedOf(limit string) (cost int64) {
	for _, c := range h.callers {
		cost += c.denied[limit]
	}
	return cost
}

// ask asks a member, and reports whether it was answered: by a limit, not by a failure.
func (c *caller) ask(m *member, limit string, cost int64) bool {
	l := m.life.Load()
	sent := time.Since(c.herd.begin)
	status, text, err := c.exchange(l, fmt.Sprintf(`{"limit": %q, "key": "all", "cost": %d}`, limit, cost))
	got := time.Since(c.herd.begin)
	switch {
	case err != nil:
		if w := c.wires[l]; w != nil {
			_ = w.Close()
			delete(c.wires, l)
		}
		if !l.killed.Load() {
			c.herd.t.Errorf("%s: %v", limit, err)
		}
		return false
	case status == http.StatusTooManyRequests:
		c.denied[limit] += cost
	case status == http.StatusOK:
		var d decision
		if err := json.Unmarshal(text, &d); err != nil || len(d.Limits) != 1 || d.Limits[0].ResetAfterMS == nil || d.Degraded {
			c.herd.t.Errorf("%s: got %s, %v", limit, text, err)
			return false
		}
		reset := time.Duration(*d.Limits[0].ResetAfterMS) * time.Millisecond
		c.grants[limit] = append(c.grants[limit], grant{sent, got, cost, reset, d.Tier == "lease"})
	case status != http.StatusServiceUnavailable:
		c.herd.t.Errorf("%s: got %d %s", limit, status, text)
	}
	return status != http.StatusServiceUnavailable
}

func (c *caller) exchange(l *life, body string) (status int, text []byte, err error) {
	w := c.wires[l]
	if w == nil {
		conn, err := net.Dial("tcp", l.addr("http"))
		if err != nil {
			return 0, nil, err
		}
		w = &wire{conn, bufio.NewReader(conn)}
		c.wires[l] = w
	}
	if err := w.SetDeadline(time.Now().Add(waitTime)); err != nil {
		return 0, nil, err
	}
	if _, err := fmt.Fprintf(w, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

func (c *caller) close() {
	for _, w := range c.wires {
		_ = w.Close()
	}
}

// mostIn returns the most by which the grants that lie wholly in some window cost more than rate per second
// times its length, and that window. It looks at every window: one that ends with a grant's answer, of
// those the one that begins with the sending of the best of the grants answered until then.
func mostIn(grants []grant, rate float64) (most float64, from, to time.Duration) {
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.got, b.got) })
	starts := make([]time.Duration, len(grants))
	for i := range grants {
		starts[i] = grants[i].sent
	}
	slices.Sort(starts)
	// A tree over the starts: the cost of the grants below a node, and the best of rate × start + the cost
	// of those below the node that were sent from that start on.
	leaves := 1
	for leaves < len(starts) {
		leaves *= 2
	}
	cost, best := make([]float64, 2*leaves), make([]float64, 2*leaves)
	for i := range best {
		best[i] = math.Inf(-1)
	}
	for i := range grants {
		at := leaves + sort.Search(len(starts), func(j int) bool { return starts[j] >= grants[i].sent })
		cost[at] += float64(grants[i].cost)
		best[at] = rate*grants[i].sent.Seconds() + cost[at]
		for at /= 2; at > 0; at /= 2 {
			cost[at] = cost[2*at] + cost[2*at+1]
			best[at] = max(best[2*at+1], best[2*at]+cost[2*at+1])
		}
		if over := best[1] - rate*grants[i].got.Seconds(); i == 0 || over > most {
			most, to = over, grants[i].got
		}
	}
	for i := range starts { // the window whose end is known
		inside := 0.0
		for j := range grants {
			if grants[j].sent >= starts[i] && grants[j].got <= to {
				inside += float64(grants[j].cost)
			}
		}
		if math.Abs(inside-rate*(to-starts[i]).Seconds()-most) < 1e-6 {
			return most, starts[i], to
		}
	}
	return most, from, to
}

// costWithin returns what the grants cost that lie wholly within some time.
func costWithin(grants []grant, from, to time.Duration) (cost int64) {
	for i := range grants {
		if grants[i].sent >= from && grants[i].got <= to {
			cost += grants[i].cost
		}
	}
	return cost
}

// end is when a window ended: at earliest, at latest, or between them.
type end struct{ earliest, latest time.Duration }

// endsOf returns when the windows of a limit ended, each a span long, as the quick answers of Redis told.
func endsOf(grants []grant, span time.Duration) (ends []end) {
	var told []end
	for i := range grants {
		if g := &grants[i]; !g.lease && g.got-g.sent < span/3 { // what a lease tells is older
			told = append(told, end{g.sent + g.reset - time.Millisecond, g.got + g.reset})
		}
	}
	slices.SortFunc(told, func(a, b end) int { return cmp.Compare(a.latest, b.latest) })
	for _, e := range told {
		if last := len(ends) - 1; last >= 0 && e.earliest <= ends[last].latest {
			ends[last].earliest = max(ends[last].earliest, e.earliest)
		} else {
			ends = append(ends, e)
		}
	}
	return ends
}
