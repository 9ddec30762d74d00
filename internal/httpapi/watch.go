package httpapi

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// watch returns a ctx that ends when parent does, or, with errHungUp as its cause, when the client at
// the other end of c closes the connection or its own side of it, which the HTTP server does not
// notice while it answers a request. What the client sends meanwhile stays unread. done ends the
// watching, and with it the goroutine that watches, and leaves c as it was but for its deadline for
// reading, which the server sets anew for every request. A connection without a socket is not watched.
func watch(parent context.Context, c net.Conn) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	unwatched := func() { cancel(nil) }
	socket, err := socketOf(c)
	if socket == nil || err != nil || c.SetReadDeadline(time.Time{}) != nil { // the request's own, which has arrived
		return ctx, unwatched
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Read calls hungUp at once, and then whenever something happens to the socket.
		if err := socket.Read(hungUp); !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(errHungUp)
		}
	}()
	return ctx, func() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // which wakes Read; a closed connection has woken it already
		<-ended
		_ = c.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}

// socketOf returns the socket under a connection of this server's listeners, or nil when it has none.
func socketOf(c net.Conn) (syscall.RawConn, error) {
	one, ok := c.(*conn)
	if !ok {
		return nil, nil
	}
	socket, ok := one.Conn.(syscall.Conn)
	if !ok {
		return nil, nil
	}
	return socket.SyscallConn()
}
