package httpapi

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
)

// TestPhasesEnd says what each phase ends in, and when: not before its time, and at most two looks later.
func TestPhasesEnd(t *testing.T) {
	bounds := times{read: 10 * time.Second, write: 20 * time.Second, idle: 90 * time.Second}
	buffer := make([]byte, 10)
	read := func(c *conn) error { _, err := c.Read(buffer); return err }
	write := func(c *conn) error { _, err := c.Write(buffer); return err }
	active := func(c *conn) { noteState(c, fasthttp.StateActive) }
	rest := func(c *conn) { noteState(c, fasthttp.StateIdle) }
	tests := []struct {
		name  string
		begin func(*conn)
		do    func(*conn) error
		least time.Duration // 0: it never ends
	}{
		{"nothing is said", func(*conn) {}, read, bounds.read},
		{"a first request arrives, whose time began with the connection", func(c *conn) { time.Sleep(6 * time.Second); active(c) }, read, bounds.read - 6*time.Second},
		{"another request arrives", func(c *conn) { active(c); rest(c); time.Sleep(60 * time.Second); active(c) }, read, bounds.read},
		{"it rests", func(c *conn) { active(c); rest(c) }, read, bounds.idle},
		{"a response leaves", active, write, bounds.write},
		{"more of it leaves", func(c *conn) { active(c); c.enter(phaseWriting); time.Sleep(15 * time.Second) }, write, bounds.write - 15*time.Second},
		{"the rest of a pipelined request is waited for", func(c *conn) { active(c); c.enter(phaseWriting); time.Sleep(15 * time.Second) }, read, bounds.read},
		{"a request is being answered", func(c *conn) { active(c); c.enter(phaseAnswering) }, read, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				all := new(conns)
				c := &conn{Conn: near, conns: all, since: time.Now()}
				all.add(c)
				ctx, stop := context.WithCancel(t.Context())
				go all.keep(ctx, bounds)
				tt.begin(c)
				if tt.least == 0 {
					time.AfterFunc(time.Hour, func() { far.Close() })
				}
				started := time.Now()
				err := tt.do(c)
				took, most := time.Since(started), tt.least+2*bounds.pace()
				switch {
				case tt.least == 0 && took < time.Hour:
					t.Errorf("ended after %v: %v", took, err)
				case tt.least > 0 && (took < tt.least || took > most || !errors.Is(err, os.ErrDeadlineExceeded)):
					t.Errorf("ended after %v, want %v to %v: %v", took, tt.least, most, err)
				}
				stop()
				far.Close()
				c.Close()
			})
		})
	}
}
