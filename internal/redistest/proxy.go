package redistest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on loopback in front of a server, with faults that can be set and lifted at
// any time, together too; each acts on the connections there are and on new ones. Without a fault
// it passes everything, the end of a stream and a reset included. A target that refuses shows as a
// connection that is accepted and at once reset, which the client's dial may already report.
//
// Safe for concurrent use. Failures are reported with t.Errorf to the test that called NewProxy.
type Proxy struct {
	t      testing.TB
	target string
	addr   string
	wg     sync.WaitGroup // accept loops and links

	mu          sync.Mutex
	listening   *listening         // guarded by mu; nil while connections are refused
	closed      bool               // guarded by mu
	links       map[*link]struct{} // guarded by mu
	accepted    int64              // guarded by mu
	delay       time.Duration      // guarded by mu
	dropReplies bool               // guarded by mu
	cutAfter    int                // guarded by mu; negative: no cut is due
	holeLifted  chan struct{}      // guarded by mu; not nil while nothing passes, closed when it does again
}

// listening is one open listener and its accept loop.
type listening struct {
	net.Listener
	done chan struct{} // closed at the end of the accept loop
}

// NewProxy starts a proxy for target, host:port or the path of a Unix socket, which need not
// listen yet. It works until t ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, addr, err := listenAnywhere()
	if err != nil {
		t.Fatalf("redistest: start proxy: %v", err)
	}
	p := &Proxy{t: t, target: target, addr: addr, links: map[*link]struct{}{}, cutAfter: -1}
	p.mu.Lock()
	p.serveLocked(listener)
	p.mu.Unlock()
	t.Cleanup(p.close)
	return p
}

// listenAnywhere listens on a port that nothing else uses.
func listenAnywhere() (listener net.Listener, addr string, err error) {
	for range portTries {
		addr = loopback(randomPort())
		if listener, err = net.Listen("tcp", addr); err == nil {
			return listener, addr, nil
		}
	}
	return nil, "", fmt.Errorf("no free port in %d tries: %w", portTries, err)
}

// Addr is the address to give to the client, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.addr }

// Connections counts the connections accepted so far, those since closed included.
func (p *Proxy) Connections() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// SetDelay makes everything that the server sends from now on arrive d later; 0 ends that.
// Throughput is not limited: what is under way waits side by side, in order, and keeps its delay
// when another is set.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// DropReplies, while on, lets requests reach the server and swallows what it sends. A connection
// that has lost a byte passes no later one either, even after the fault has ended, as TCP delivers
// nothing beyond a gap; it stays open.
func (p *Proxy) DropReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropReplies = on
}

// BlackHole, while on, passes nothing in either direction, the end of a stream included.
// Connections stay open, and new ones are accepted. When it ends, all that was held is delivered,
// as TCP does after a partition, so the server then also gets what clients have long given up.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.holeLifted == nil:
		p.holeLifted = make(chan struct{})
	case !on && p.holeLifted != nil:
		close(p.holeLifted)
		p.holeLifted = nil
	}
}

// Refuse, while on, has new connections refused by the kernel. Setting it resets the existing
// ones; lifting it listens on the same port again. Both are done when it returns.
func (p *Proxy) Refuse(on bool) {
	if on {
		p.stopListening()
		p.ResetAll()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listening != nil || p.closed {
		return
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Errorf("redistest: reopen proxy: %v", err)
		return
	}
	p.serveLocked(listener)
}

// CutReplyAfter resets one connection in the middle of a reply, once: the next one over which the
// server sends something passes n bytes more and is reset, on both sides. With 0 the command is
// executed and nothing of its reply arrives. A negative n calls off a cut not yet begun.
func (p *Proxy) CutReplyAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter = n
}

// ResetAll resets (RST) the connections there are, on both sides, even in a black hole, and
// returns when that is done.
func (p *Proxy) ResetAll() {
	p.mu.Lock()
	var done []<-chan struct{}
	for l := range p.links {
		l.reset()
		done = append(done, l.done)
	}
	p.mu.Unlock()
	for _, d := range done {
		<-d
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse(true)
	p.wg.Wait()
}

// stopListening returns when the port is free.
func (p *Proxy) stopListening() {
	p.mu.Lock()
	l := p.listening
	p.listening = nil
	p.mu.Unlock()
	if l != nil {
		_ = l.Close()
		<-l.done
	}
}

func (p *Proxy) serveLocked(listener net.Listener) {
	l := &listening{Listener: listener, done: make(chan struct{})}
	p.listening = l
	p.wg.Go(func() { p.accept(l) })
}

func (p *Proxy) accept(l *listening) {
	defer close(l.done)
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		p.admit(l, conn.(*net.TCPConn))
	}
}

// admit serves a new connection, unless l was closed meanwhile.
func (p *Proxy) admit(l *listening, client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listening != l {
		abort(client)
		return
	}
	p.accepted++
	link := newLink(p, client)
	p.links[link] = struct{}{}
	p.wg.Go(func() {
		link.run()
		p.mu.Lock()
		delete(p.links, link)
		p.mu.Unlock()
	})
}

// awaitPassage waits while nothing passes; false means that ctx has ended.
func (p *Proxy) awaitPassage(ctx context.Context) bool {
	for {
		p.mu.Lock()
		lifted := p.holeLifted
		p.mu.Unlock()
		if lifted == nil {
			return ctx.Err() == nil
		}
		select {
		case <-lifted:
		case <-ctx.Done():
			return false
		}
	}
}

// dueNow is when something that the server sends now is to arrive.
func (p *Proxy) dueNow() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

func (p *Proxy) dropsReplies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropReplies
}

// takeCut hands the cut that is due, if any, to one link; negative: none.
func (p *Proxy) takeCut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.cutAfter
	p.cutAfter = -1
	return n
}
