package load_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/tidegate/tidegate/bench/internal/load"
)

// tally answers 200, or 429 to the question that says so, and keeps what it was asked.
type tally struct {
	mu    sync.Mutex
	asked map[string]int // guarded by mu
	bad   atomic.Int64   // questions that were not put as an application puts them
}

func (s *tally) answer(ctx *fasthttp.RequestCtx) {
	if string(ctx.Method()) != "POST" || string(ctx.Path()) != load.Path || string(ctx.Request.Header.ContentType()) != "application/json" {
		s.bad.Add(1)
	}
	s.mu.Lock()
	s.asked[string(ctx.PostBody())]++
	s.mu.Unlock()
	if string(ctx.PostBody()) == "deny" {
		ctx.SetStatusCode(429)
	}
}

// counts returns how often each question was asked so far: when a run has ended, some may still be answered.
func (s *tally) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.asked)
}

// serve answers on a loopback address and a Unix socket until t ends.
func serve(t *testing.T) (s *tally, address, socket string) {
	t.Helper()
	s = &tally{asked: map[string]int{}}
	socket = filepath.Join(t.TempDir(), "s")
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: s.answer}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(tcp) })
	group.Go(func() { _ = server.Serve(unix) })
	t.Cleanup(func() {
		_ = server.Shutdown()
		group.Wait()
	})
	return s, tcp.Addr().String(), socket
}

// check compares what a run saw with what the server was asked.
func (s *tally) check(t *testing.T, r load.Result, err error, denied string, most int64) {
	t.Helper()
	counts, asked := s.counts(), int64(0)
	for _, n := range counts {
		asked += int64(n)
	}
	// When a run ends, each connection may have a question under way.
	if err != nil || r.Answers == 0 || r.Answers > asked || r.Answers < asked-most || r.Broken != 0 {
		t.Errorf("the server was asked %d times, the run saw %+v, %v", asked, r, err)
	}
	if want := int64(counts[denied]); r.Failures > want || r.Failures < want-most {
		t.Errorf("%d failures, want %d", r.Failures, want)
	}
	if r.P50 <= 0 || r.P99 < r.P50 || r.Took <= 0 || r.PerSecond() <= 0 {
		t.Errorf("got %+v", r)
	}
	if n := s.bad.Load(); n > 0 {
		t.Errorf("%d questions were put wrongly", n)
	}
}

// TestWrk runs wrk with its script, on a deck of one and on one of three.
func TestWrk(t *testing.T) {
	for _, deck := range []load.Deck{load.One("deny"), {[]byte("a"), []byte("deny"), []byte("bc")}} {
		s, address, _ := serve(t)
		wrk, err := load.NewWrk(t.TempDir(), deck)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wrk.Do(t.Context(), load.Run{Network: "tcp", Address: address, Connections: 4, For: time.Second, Skip: 7})
		s.check(t, r, err, "deny", 4)
		counts := s.counts()
		for _, body := range deck {
			if n := counts[string(body)]; n < int(r.Answers)/len(deck)-4 {
				t.Errorf("%q was asked %d times of %d", body, n, r.Answers)
			}
		}
		if len(counts) != len(deck) {
			t.Errorf("asked %v, want %q", counts, deck)
		}
	}
}

// TestClosed asks over both networks.
func TestClosed(t *testing.T) {
	s, address, socket := serve(t)
	deck := load.Deck{[]byte("a"), []byte("deny")}
	for network, at := range map[string]string{"tcp": address, "unix": socket} {
		s.mu.Lock()
		clear(s.asked)
		s.mu.Unlock()
		r, err := load.Closed(t.Context(), deck, load.Run{Network: network, Address: at, Connections: 3, For: 50 * time.Millisecond})
		s.check(t, r, err, "deny", 3)
	}
}

// TestArrive pins the number of questions, on a busy machine too, that failures count, and that waiting for no
// answer holds the next question back.
func TestArrive(t *testing.T) {
	s, _, socket := serve(t)
	a, err := load.Arrive(t.Context(), load.Deck{[]byte("a"), []byte("deny")}, 1000, 200*time.Millisecond, socket)
	if err != nil || a.Answers != 200 || a.Failures != 100 || a.Took < 199*time.Millisecond {
		t.Errorf("got %+v, %v, want 200 answers and 100 failures", a, err)
	}
	if n := s.bad.Load(); n > 0 {
		t.Errorf("%d questions were put wrongly", n)
	}
	var calls atomic.Int64
	slow := func(context.Context, []byte) error {
		if calls.Add(1)%10 == 0 {
			return errors.New("no")
		}
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	a, err = load.ArriveAt(t.Context(), load.One("a"), 1000, 200*time.Millisecond, slow)
	if err != nil || a.Answers != 200 || a.Failures != calls.Load()/10 || a.P50 < 50*time.Millisecond || a.DueP50 < a.P50 {
		t.Errorf("got %+v, %v, want 200 answers after 50ms each", a, err)
	}
}

// TestDecks counts what the decks ask.
func TestDecks(t *testing.T) {
	counts := func(d load.Deck) map[string]int {
		n := map[string]int{}
		for _, body := range d {
			n[string(body)]++
		}
		return n
	}
	uniform := load.Uniform(`{"key":"u%06d"}`, 100_000)
	if n := len(counts(uniform)); n < 94_000 || n > 96_000 {
		t.Errorf("an even deck asks about %d keys of 100,000", n)
	}
	if !slices.EqualFunc(uniform, load.Uniform(`{"key":"u%06d"}`, 100_000), func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("two decks differ")
	}
	zipf := counts(load.Zipf("%d", 100_000))
	first, hundred := zipf["0"], 0
	for key := range 100 {
		hundred += zipf[strconv.Itoa(key)]
	}
	if total := 300_000; first < total/10 || first > total/5 || hundred < total/2 || hundred > total*3/4 {
		t.Errorf("a Zipf deck asks about the first key %d times, the first hundred %d times", first, hundred)
	}
	batches := load.Batches(`{"k":%d}`, 6, 3)
	if len(batches) != 2 || string(batches[1]) != `{"checks":[{"k":3},{"k":4},{"k":5}]}` {
		t.Errorf("got %q", batches)
	}
}
