package httpapi_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/httpapi"
)

// scriptedListener returns one error after another, then a connection, then that it is closed.
type scriptedListener struct {
	net.Listener
	errs []error
	conn net.Conn
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *scriptedListener) Close() error { return nil }

func TestAcceptOutlivesALackOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		near, far := net.Pipe()
		defer far.Close()
		l := httpapi.WrapListener(&scriptedListener{errs: []error{full, full, full}, conn: near})
		started := time.Now()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got, want := time.Since(started), (5+10+20)*time.Millisecond; got != want {
			t.Errorf("accepted after %v, want %v", got, want)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want that it is closed", err)
		}
	})
}
