package redistest

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Stub is a server on loopback that answers every command with the bytes a test gives it: for the
// replies that a real redis-server gives only in states hard to bring about, such as "-LOADING …",
// "-BUSY …" or the INFO of an old version.
type Stub struct {
	reply    func(command []string) string
	listener net.Listener
	commands atomic.Int64
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu; nil once the stub is closed
}

// NewStub serves until t ends. reply returns the raw RESP of the answer ("+OK\r\n", [Bulk]); an
// empty string is no answer at all, and the connection stays open. The commands of one connection
// are answered in order, those of several concurrently, so reply must be safe for concurrent use,
// and must return for t to end. A client that does not send arrays of bulk strings is cut off.
func NewStub(t testing.TB, reply func(command []string) string) *Stub {
	t.Helper()
	listener, _, err := listenAnywhere()
	if err != nil {
		t.Fatalf("redistest: start stub: %v", err)
	}
	s := &Stub{reply: reply, listener: listener, conns: map[net.Conn]struct{}{}}
	s.wg.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

// Addr is the TCP address, "127.0.0.1:port".
func (s *Stub) Addr() string { return s.listener.Addr().String() }

// Commands counts the commands received so far, handshakes (HELLO, CLIENT, AUTH) included. One is
// counted before it is answered.
func (s *Stub) Commands() int64 { return s.commands.Load() }

func (s *Stub) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		if !s.admit(conn) {
			_ = conn.Close()
		}
	}
}

func (s *Stub) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[conn] = struct{}{}
	s.wg.Go(func() { s.serve(conn) })
	return true
}

func (s *Stub) serve(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	in := bufio.NewReader(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return // the client left, or does not speak RESP
		}
		s.commands.Add(1)
		if _, err := conn.Write([]byte(s.reply(command))); err != nil {
			return
		}
	}
}

func (s *Stub) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}
