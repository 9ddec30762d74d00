package chaos_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// answer is what the load saw of one request.
type answer struct {
	sent     time.Duration // when it was due, since the load began
	took     time.Duration // from then to its last byte, so a wait for a connection counts
	question int
	user     int
	err      error // none came
	status   int
	body     struct {
		Allowed  bool   `json:"allowed"`
		Degraded bool   `json:"degraded"`
		Tier     string `json:"tier"`
		Code     string `json:"code"`
	}
}

// shared reports whether Redis decided.
func (a *answer) shared() bool { return a.status != http.StatusServiceUnavailable && !a.body.Degraded }

// load asks a sidecar at a constant rate, whatever the answers do: request i is due at i times
// the interval, and one that has to wait is late by as much. The questions take turns, and so do
// the users.
type load struct {
	addr     string
	interval time.Duration
	requests [][][]byte // by question and user
	begin    time.Time
	ending   chan struct{}
	ended    sync.Once // has closed ending
	asking   sync.WaitGroup

	mu      sync.Mutex
	idle    []*client     // guarded by mu
	dials   int           // guarded by mu
	lag     time.Duration // guarded by mu; by how much the load was itself late at most
	answers []answer      // guarded by mu
}

// client is one connection that is kept alive.
type client struct {
	net.Conn
	in *bufio.Reader
}

const (
	connections = 64 // opened before the load begins; further ones as they are needed
	giveUp      = 10 * time.Second
)

// startLoad begins to ask for questions, each a JSON body with %d where the user goes.
func startLoad(t *testing.T, addr string, rate int, questions []string, users int) *load {
	t.Helper()
	l := &load{addr: addr, interval: time.Second / time.Duration(rate), ending: make(chan struct{})}
	for _, q := range questions {
		var requests [][]byte
		for user := range users {
			requests = append(requests, request(fmt.Sprintf(q, user)))
		}
		l.requests = append(l.requests, requests)
	}
	for range connections {
		c, err := dial(l.addr)
		if err != nil {
			t.Fatal(err)
		}
		l.idle = append(l.idle, c)
	}
	l.begin = time.Now()
	l.asking.Go(l.run)
	t.Cleanup(l.closeAll)
	return l
}

// request is a POST of the body to /v1/check.
func request(body string) []byte {
	return fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func (l *load) run() {
	for i := 0; ; i++ {
		due := time.Duration(i) * l.interval
		select {
		case <-l.ending:
			return
		case <-time.After(due - time.Since(l.begin)):
		}
		l.noteLag(time.Since(l.begin) - due)
		l.asking.Go(func() { l.ask(i, due) })
	}
}

func (l *load) noteLag(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = max(l.lag, late)
}

// ask sends request i and keeps its answer.
func (l *load) ask(i int, due time.Duration) {
	question := i % len(l.requests)
	user := i / len(l.requests) % len(l.requests[question])
	a := answer{sent: due, question: question, user: user}
	a.err = l.exchange(l.requests[question][user], &a)
	a.took = time.Since(l.begin) - due
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

func (l *load) exchange(request []byte, a *answer) error {
	c, err := l.take()
	if err != nil {
		return err
	}
	if err := c.exchange(request, a); err != nil {
		_ = c.Close()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, c)
	return nil
}

// take hands out an idle connection, or a new one.
func (l *load) take() (*client, error) {
	l.mu.Lock()
	if last := len(l.idle) - 1; last >= 0 {
		c := l.idle[last]
		l.idle = l.idle[:last]
		l.mu.Unlock()
		return c, nil
	}
	l.dials++
	l.mu.Unlock()
	return dial(l.addr)
}

func dial(addr string) (*client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{Conn: c, in: bufio.NewReader(c)}, nil
}

func (c *client) exchange(request []byte, a *answer) error {
	if err := c.SetDeadline(time.Now().Add(giveUp)); err != nil {
		return err
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	a.status = response.StatusCode
	if err := json.Unmarshal(text, &a.body); err != nil {
		return err
	}
	if header := response.Header.Get("X-Tidegate-Degraded") == "true"; a.status == http.StatusOK && header != a.body.Degraded {
		return fmt.Errorf("X-Tidegate-Degraded is %t beside %s", header, text)
	}
	return nil
}

// end stops asking, waits for the last answers and returns all in the order in which they were due.
func (l *load) end() []answer {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.answers, func(a, b answer) int { return int(a.sent - b.sent) })
	return l.answers
}

func (l *load) stop() {
	l.ended.Do(func() { close(l.ending) })
	l.asking.Wait()
}

// recovered reports whether Redis decided a request that was due after since.
func (l *load) recovered(since time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.answers) - 1; i >= 0 && l.answers[i].sent > since; i-- {
		if l.answers[i].err == nil && l.answers[i].shared() {
			return true
		}
	}
	return false
}

// side returns how many connections the load had to open while it ran, and by how much it was
// itself late at most: on an idle machine by some milliseconds.
func (l *load) side() (dials int, lag time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials, l.lag
}

func (l *load) closeAll() {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.idle {
		_ = c.Close()
	}
	l.idle = nil
}
