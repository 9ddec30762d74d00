package delay_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tidegate/tidegate/bench/internal/delay"
)

// patience bounds what a test waits for; reaching it is a failure.
const patience = 10 * time.Second

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// far returns a connection through a proxy to one that gives everything back.
func far(t *testing.T, oneWay time.Duration) net.Conn {
	t.Helper()
	echo, proxy := listen(t), listen(t)
	go func() {
		for conn, err := echo.Accept(); err == nil; conn, err = echo.Accept() {
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- delay.Serve(ctx, proxy, echo.Addr().String(), oneWay) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", proxy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestLate: an answer comes a round trip late.
func TestLate(t *testing.T) {
	const oneWay = 20 * time.Millisecond
	conn := far(t, oneWay)
	for range 3 {
		began := time.Now()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 2*oneWay || took > 2*oneWay+time.Second {
			t.Errorf("an answer took %v, want a little more than %v", took, 2*oneWay)
		}
	}
}

// TestThroughput: much more than one parcel is under way at a time, in order. At one parcel of 64 KB in
// 100 ms, 40 MB would take a minute.
func TestThroughput(t *testing.T) {
	conn := far(t, 50*time.Millisecond)
	sent := make([]byte, 40<<20)
	for i := range sent {
		sent[i] = byte(i>>8) * 31
	}
	began := time.Now()
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("what came back differs, %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("40 MB took %v", took)
	}
}

// TestCut: what one side closes is closed for the other.
func TestCut(t *testing.T) {
	server, proxy := listen(t), listen(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- delay.Serve(ctx, proxy, server.Addr().String(), 0) }()
	near, err := net.Dial("tcp", proxy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := near.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := near.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v, want the end", n, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
