package redistest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is one proxied connection. The goroutine of run owns it, and those that pump its bytes.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context
	reset  context.CancelFunc // has run reset both sides; safe to call at any time
	done   chan struct{}      // closed when both sides are closed
	muted  bool               // used by sendReplies alone: a reply was dropped
	cut    int                // used by sendReplies alone: bytes to pass before a reset; negative: none
}

// duplex is what TCP and Unix connections have in common.
type duplex interface {
	net.Conn
	CloseWrite() error
}

// chunk is what one read from the server brought: bytes, the end of its stream, or both.
type chunk struct {
	data []byte
	due  time.Time
	err  error
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{proxy: p, client: client, ctx: ctx, reset: cancel, done: make(chan struct{}), cut: -1}
}

// run pumps until both streams have ended or the link is reset.
func (l *link) run() {
	defer close(l.done)
	defer l.reset()
	server, err := l.dial()
	if err != nil {
		abort(l.client)
		return
	}
	replies := newChunkQueue()
	var pumps sync.WaitGroup
	pumps.Go(func() { l.sendRequests(server) })
	pumps.Go(func() { l.readReplies(server, replies) })
	pumps.Go(func() { l.sendReplies(replies) })
	finished := make(chan struct{})
	go func() {
		pumps.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-l.ctx.Done():
	}
	if l.ctx.Err() != nil {
		abort(l.client)
		abort(server)
	}
	<-finished
	_ = l.client.Close()
	_ = server.Close()
}

func (l *link) dial() (duplex, error) {
	if !l.proxy.awaitPassage(l.ctx) {
		return nil, l.ctx.Err()
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(l.ctx, network(l.proxy.target), l.proxy.target)
	if err != nil {
		return nil, err
	}
	return server.(duplex), nil
}

// sendRequests passes what the client sends.
func (l *link) sendRequests(server duplex) {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.client.Read(buf)
		if !l.proxy.awaitPassage(l.ctx) {
			return
		}
		if n > 0 {
			if _, err := server.Write(buf[:n]); err != nil {
				l.reset()
				return
			}
		}
		if err != nil {
			l.end(server, err)
			return
		}
	}
}

// readReplies stamps what the server sends with the time at which it is due.
func (l *link) readReplies(server duplex, replies *chunkQueue) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		replies.push(chunk{data: bytes.Clone(buf[:n]), due: l.proxy.dueNow(), err: err})
		if err != nil {
			return
		}
	}
}

// sendReplies passes what the server has sent, each chunk when it is due.
func (l *link) sendReplies(replies *chunkQueue) {
	for {
		c, ok := replies.pop(l.ctx)
		if !ok || !sleepUntil(l.ctx, c.due) || !l.proxy.awaitPassage(l.ctx) {
			return
		}
		if len(c.data) > 0 && !l.sendReply(c.data) {
			l.reset()
			return
		}
		if c.err != nil {
			l.end(l.client, c.err)
			return
		}
	}
}

// sendReply passes data, or what the faults leave of it; false means that the link must be reset.
func (l *link) sendReply(data []byte) bool {
	if l.muted || l.proxy.dropsReplies() {
		l.muted = true
		return true
	}
	if l.cut < 0 {
		l.cut = l.proxy.takeCut()
	}
	if l.cut >= 0 {
		data = data[:min(len(data), l.cut)]
		l.cut -= len(data)
	}
	_, err := l.client.Write(data)
	return err == nil && l.cut != 0
}

// end tells one side how the stream of the other has ended: err is from its last read.
func (l *link) end(side duplex, err error) {
	if !errors.Is(err, io.EOF) || side.CloseWrite() != nil {
		l.reset()
	}
}

// abort closes a connection with RST, and without sending what it still holds.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// sleepUntil returns false when ctx ends first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// chunkQueue is an unbounded queue with one reader, so that a delay never holds back the server.
type chunkQueue struct {
	filled chan struct{} // holds one signal after a push

	mu     sync.Mutex
	chunks []chunk // guarded by mu
}

func newChunkQueue() *chunkQueue { return &chunkQueue{filled: make(chan struct{}, 1)} }

func (q *chunkQueue) push(c chunk) {
	q.mu.Lock()
	q.chunks = append(q.chunks, c)
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// pop waits for the next chunk; false means that ctx has ended.
func (q *chunkQueue) pop(ctx context.Context) (chunk, bool) {
	for {
		q.mu.Lock()
		if len(q.chunks) > 0 {
			c := q.chunks[0]
			q.chunks = q.chunks[1:]
			q.mu.Unlock()
			return c, true
		}
		q.mu.Unlock()
		select {
		case <-q.filled:
		case <-ctx.Done():
			return chunk{}, false
		}
	}
}
