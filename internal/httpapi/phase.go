package httpapi

import (
	"context"
	"time"
)

// phase is what a connection is busy with. Each phase but the server's own may take so long and no
// longer; see times.
type phase uint32

const (
	phaseReading   phase = iota // a request arrives, or the first one is waited for
	phaseAnswering              // it is being answered, for which the limiter has a time
	phaseWriting                // a response leaves
	phaseResting                // between two requests

	phaseBits = 2
)

// times is how long the phases may take. The deadlines that a connection has of its own would keep them to
// the nanosecond, but three of them for each request take longer to set than a denial takes to decide. So
// connections note what they do, and one goroutine looks at all of them now and then.
type times struct{ read, write, idle time.Duration }

// pace is the time between two looks. A phase ends late by two of them at most, and never early.
func (t times) pace() time.Duration {
	return max(min(t.read, t.write, t.idle)/16, time.Millisecond)
}

// keep looks at the connections until ctx ends, and ends what takes too long.
func (c *conns) keep(ctx context.Context, t times) {
	looks := time.NewTicker(t.pace())
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
			c.look(time.Now(), t)
		}
	}
}

func (c *conns) look(now time.Time, t times) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		one.look(now, t)
	}
}

// look ends the phase of the connection if it has taken too long since a look first saw it: reading and
// resting by a deadline that is over, so that the server still says so, or closes the connection, as is
// right. The caller holds the mu of its conns.
func (c *conn) look(now time.Time, t times) {
	doing := c.doing.Load()
	if doing != c.seen {
		c.seen, c.since = doing, now
		return
	}
	past, took := time.Unix(1, 0), now.Sub(c.since)
	switch phase(doing & (1<<phaseBits - 1)) {
	case phaseReading:
		if took >= t.read {
			_ = c.Conn.SetReadDeadline(past)
		}
	case phaseResting:
		if took >= t.idle {
			_ = c.Conn.SetReadDeadline(past)
		}
	case phaseWriting:
		if took >= t.write {
			_ = c.Conn.SetWriteDeadline(past)
		}
	}
}

// enter notes that the next phase has begun. Only the goroutine that serves the connection calls it.
func (c *conn) enter(p phase) {
	c.doing.Store(c.doing.Load()&^(1<<phaseBits-1) + 1<<phaseBits | uint32(p))
}

func (c *conn) phase() phase { return phase(c.doing.Load() & (1<<phaseBits - 1)) }

// Read reads what the client sends. What is still to be written when a piece of a pipelined request is
// waited for has been written by then.
func (c *conn) Read(b []byte) (int, error) {
	if c.phase() == phaseWriting {
		c.enter(phaseReading)
	}
	return c.Conn.Read(b)
}

// Write writes a piece of a response. All pieces together have one time.
func (c *conn) Write(b []byte) (int, error) {
	if c.phase() != phaseWriting {
		c.enter(phaseWriting)
	}
	return c.Conn.Write(b)
}
