package remote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// roundTrips is how many round trips a call on a new connection takes at most: TCP, TLS, HELLO,
// AUTH, greet, and the call's own.
const roundTrips = 6

// connections is how many calls are under way at once, each on a connection of its own; further
// ones wait. poolSize is far more, since it is also the number of failed dials in a row after which
// the client dials only once a second, and so would come back late from a long outage.
const (
	connections = 32
	poolSize    = 10_000
)

// unhurried returns a context for a call, whose end is not that of the callers' waits: the call goes on
// for as long as its round trips may take. Otherwise a Redis that answers in time, yet not several
// times within it, could never be given a connection: the next call finds the one that this call has
// made ready.
func (s *Store) unhurried() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), roundTrips*s.cfg.Timeout)
}

// ready sees to it that Redis's time is known, without which no deadline can be given: the first
// connection reads it.
func (s *Store) ready(ctx context.Context) error {
	if s.clock.known() {
		return nil
	}
	return s.client.Ping(ctx).Err()
}

// script is a script, and the hash by which Redis knows it.
type script struct{ text, hash string }

func newScript(text string) script { return script{text, redis.NewScript(text).Hash()} }

// run sends a script once, by its hash. A server that does not know it has run nothing, and gets its
// text. Whatever its reply says of Redis's time is taken over.
func (s *Store) run(ctx context.Context, script *script, c *call, p *passage) (string, error) {
	text, err := s.send(ctx, "EVALSHA", script.hash, c, p)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		text, err = s.send(ctx, "EVAL", script.text, c, p)
	}
	if err != nil {
		return "", err
	}
	r := readReply(text)
	if err := r.failed(); err != nil {
		return "", err
	}
	s.clock.set(r.now, time.Now())
	return text, nil
}

// passage is how far a call has come: it waits for a connection until it is either sent or
// withdrawn. The zero passage waits. Safe for concurrent use.
type passage struct {
	state  atomic.Int32
	sentAt atomic.Pointer[time.Time] // nil until it is sent
}

const (
	waiting int32 = iota
	sent
	withdrawn
)

// send reports whether the call may be sent.
func (p *passage) send() bool {
	if p.state.CompareAndSwap(waiting, sent) {
		now := time.Now()
		p.sentAt.Store(&now)
		return true
	}
	return p.state.Load() == sent
}

// sentBy reports whether the call was sent, and not after t.
func (p *passage) sentBy(t time.Time) bool {
	at := p.sentAt.Load()
	return at != nil && !at.After(t)
}

// withdraw reports whether the call was not sent, and never will be.
func (p *passage) withdraw() bool {
	return p.state.CompareAndSwap(waiting, withdrawn) || p.state.Load() == withdrawn
}

// onceCmd is a command that the client must not send again by itself: it might charge twice.
type onceCmd struct {
	*redis.Cmd
	passage *passage
}

func (onceCmd) NoRetry() bool { return true }

// Args returns what is to be sent. The client asks when it has a connection and writes: the last
// point before the bytes leave, where it cannot be made to send nothing. A command that was withdrawn
// until then is a PING.
func (c onceCmd) Args() []any {
	if !c.passage.send() {
		return []any{"PING"}
	}
	return c.Cmd.Args()
}

func (s *Store) send(ctx context.Context, verb, script string, c *call, p *passage) (string, error) {
	args := make([]any, 0, 4+len(c.keys))
	args = append(args, verb, script, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := onceCmd{redis.NewCmd(ctx, append(args, c.args)...), p}
	if err := s.client.Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}
