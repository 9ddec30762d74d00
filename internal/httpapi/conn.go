package httpapi

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// lingerTime is how long the rest of a refused request is read and dropped.
	lingerTime = time.Second

	// The pause after an accept that failed for want of a file descriptor or memory.
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// conns are the open connections of a server. The zero value is ready; safe for concurrent use.
type conns struct {
	mu   sync.Mutex
	open map[*conn]struct{} // guarded by mu
}

func (c *conns) add(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*conn]struct{}{}
	}
	c.open[one] = struct{}{}
}

func (c *conns) remove(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, one)
}

// closeSilent closes the connections on which no byte has arrived yet.
func (c *conns) closeSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		if !one.spoke.Load() {
			_ = one.Conn.Close()
		}
	}
}

// closeAll closes every connection and returns how many there were.
func (c *conns) closeAll() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		_ = one.Conn.Close()
	}
	return len(c.open)
}

// listener hands out connections that its conns know, and outlives a lack of file descriptors.
type listener struct {
	net.Listener
	conns  *conns
	closed chan struct{}
	once   sync.Once
}

func newListener(l net.Listener, conns *conns) *listener {
	return &listener{Listener: l, conns: conns, closed: make(chan struct{})}
}

// Accept waits for the next connection. A want of file descriptors or memory is no error, as it
// passes; any other error is for good.
func (l *listener) Accept() (net.Conn, error) {
	for pause := minAcceptPause; ; pause = min(2*pause, maxAcceptPause) {
		c, err := l.Listener.Accept()
		if err == nil {
			one := &conn{Conn: c, conns: l.conns, since: time.Now()}
			l.conns.add(one)
			return one, nil
		}
		if !passing(err) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-l.closed:
		}
	}
}

// Close stops Accept. Closing again does nothing.
func (l *listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

func passing(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// conn is one client's connection.
type conn struct {
	net.Conn
	conns  *conns
	spoke  atomic.Bool   // a first byte has arrived
	linger atomic.Bool   // the client may still be sending what was refused
	doing  atomic.Uint32 // a phase, and above its bits how many there were before

	seen  uint32    // what doing was at the last look; guarded by mu of conns
	since time.Time // when a look first saw that; at first when the connection was accepted; guarded by mu of conns
}

// noteState notes the first byte of a request, and that it has been answered. The time of a connection's
// first request has begun with the connection.
func noteState(c net.Conn, state fasthttp.ConnState) {
	one, ok := c.(*conn)
	switch {
	case !ok:
	case state == fasthttp.StateIdle:
		one.enter(phaseResting)
	case state != fasthttp.StateActive:
	case one.spoke.Load():
		one.enter(phaseReading)
	default:
		one.spoke.Store(true)
	}
}

// noteArrived notes that the request of rc is there.
func noteArrived(rc *fasthttp.RequestCtx) {
	if one, ok := rc.Conn().(*conn); ok {
		one.enter(phaseAnswering)
	}
}

// lingerOnClose lets the connection of rc be closed so that the response survives.
func lingerOnClose(rc *fasthttp.RequestCtx) {
	if one, ok := rc.Conn().(*conn); ok {
		one.linger.Store(true)
	}
}

// Close closes the connection. When the client may still be sending a request that was refused,
// Close first ends its own side and drops what arrives for a while: closing at once would reset
// the connection, and the client might never see the answer.
func (c *conn) Close() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Swap(false) {
		if half.CloseWrite() == nil && c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.Copy(io.Discard, c.Conn)
		}
	}
	c.conns.remove(c)
	return c.Conn.Close()
}
