package httpapi_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/httpapi"
)

const (
	question = `{"limit":"per-user","key":"u"}`
	askRaw   = "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 30\r\n\r\n" + question
)

// post returns a request in full.
func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// rawConn is a connection on which a test says exactly what it wants to say.
type rawConn struct {
	net.Conn
	reader *bufio.Reader
}

func dial(t *testing.T, network, address string) *rawConn {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &rawConn{Conn: c, reader: bufio.NewReader(c)}
}

// say writes text; that the server may have closed the connection is no error.
func (c *rawConn) say(text string) { _, _ = io.WriteString(c, text) }

func (c *rawConn) read(t *testing.T) answer {
	t.Helper()
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.Close {
		response.Header.Set("Connection", "close")
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(body)}
}

// wantClosed checks that the server says nothing more and has closed the connection.
func (c *rawConn) wantClosed(t *testing.T) {
	t.Helper()
	rest, err := io.ReadAll(c.reader)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || len(rest) > 0 {
		t.Errorf("the connection is open, or said %q: %v", rest, err)
	}
}

// bothWays runs a test over TCP and over the Unix socket.
func bothWays(t *testing.T, change func(*httpapi.Config), test func(t *testing.T, s *sidecar, dial func() *rawConn)) {
	overBoth(t, func(t *testing.T) *sidecar { return start(t, change) }, test)
}

// realBothWays is bothWays with the store that is in this process.
func realBothWays(t *testing.T, change func(*httpapi.Config), test func(t *testing.T, s *sidecar, dial func() *rawConn)) {
	overBoth(t, func(t *testing.T) *sidecar { return startReal(t, change) }, test)
}

func overBoth(t *testing.T, start func(*testing.T) *sidecar, test func(t *testing.T, s *sidecar, dial func() *rawConn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s := start(t)
			address := map[string]string{"tcp": s.tcp, "unix": s.unix}[network]
			test(t, s, func() *rawConn { return dial(t, network, address) })
		})
	}
}

func TestRawRequests(t *testing.T) {
	chunked := func(parts ...string) string {
		var b strings.Builder
		b.WriteString("POST /v1/check HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
		for _, part := range parts {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
		}
		return b.String() + "0\r\n\r\n"
	}
	tests := []struct {
		name, text string
		status     int
		code       string
		closed     bool
	}{
		{"plain", askRaw, 200, "", false},
		{"HTTP/1.0", strings.Replace(askRaw, "HTTP/1.1", "HTTP/1.0", 1), 200, "", true},
		{"asks to close", strings.Replace(askRaw, "Host: t", "Host: t\r\nConnection: close", 1), 200, "", true},
		{"chunks", chunked(question[:7], question[7:]), 200, "", false},
		{"expects 100", strings.Replace(askRaw, "Host: t", "Host: t\r\nExpect: 100-continue", 1), 100, "", false},
		{"calls itself a form", strings.Replace(askRaw, "Host: t", "Host: t\r\nContent-Type: multipart/form-data; boundary=x", 1), 200, "", false},
		{"calls itself urlencoded", strings.Replace(askRaw, "Host: t", "Host: t\r\nContent-Type: application/x-www-form-urlencoded", 1), 200, "", false},
		{"a body at the cap", "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 65536\r\n\r\n" + question + strings.Repeat(" ", 65536-30), 200, "", false},
		{"a body over the cap", "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 65537\r\n\r\n" + question + strings.Repeat(" ", 65537-30), 413, "body-too-large", true},
		{"a body over the cap, elsewhere", "GET /v1/status HTTP/1.1\r\nHost: t\r\nContent-Length: 65537\r\n\r\n", 413, "body-too-large", true},
		{"chunks over the cap", chunked(question, strings.Repeat(" ", 40_000), strings.Repeat(" ", 40_000)), 413, "body-too-large", true},
		{"one huge chunk", "POST /v1/check HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n", 413, "body-too-large", true},
		{"no chunk", "POST /v1/check HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "invalid-request", true},
		{"a long header", "POST /v1/check HTTP/1.1\r\nHost: t\r\nX: " + strings.Repeat("x", 20_000) + "\r\n\r\n", 431, "header-too-large", true},
		{"a long path", "GET /" + strings.Repeat("x", 20_000) + " HTTP/1.1\r\nHost: t\r\n\r\n", 431, "header-too-large", true},
		{"many headers", "POST /v1/check HTTP/1.1\r\nHost: t\r\n" + strings.Repeat("X: yyyy\r\n", 3000) + "\r\n", 431, "header-too-large", true},
		{"no HTTP", "hello\r\n\r\n", 400, "invalid-request", true},
		{"a length that is none", "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 3x\r\n\r\nabc", 400, "invalid-request", true},
		{"a negative length", "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: -5\r\n\r\nabc", 400, "invalid-request", true},
		{"two lengths", "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400, "invalid-request", true},
	}
	bothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c := dial()
				c.say(strings.ReplaceAll(tt.text, `"u"`, fmt.Sprintf(`"%c"`, 'A'+i))) // each has a bucket of its own
				got := c.read(t)
				if got.status == 100 && tt.status == 100 {
					got = c.read(t)
					tt.status = 200
				}
				if tt.code != "" {
					wantProblem(t, got, tt.status, tt.code, "")
				} else if got.status != tt.status {
					t.Errorf("got %s, want status %d", got, tt.status)
				}
				wantHeaders(t, got.header, map[string]string{"Server": ""})
				if tt.closed {
					c.wantClosed(t)
					return
				}
				c.say(askRaw)
				if again := c.read(t); again.status != 200 && again.status != 429 {
					t.Errorf("the next request got %s", again)
				}
			})
		}
	})
}

func TestPipelining(t *testing.T) {
	bothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		c := dial()
		c.say(askRaw + askRaw + "GET /nowhere HTTP/1.1\r\nHost: t\r\n\r\n" + askRaw + askRaw + askRaw[:40])
		for i, want := range []int{200, 200, 404, 200, 429} {
			if got := c.read(t); got.status != want {
				t.Errorf("answer %d: got %s, want status %d", i, got, want)
			}
		}
		c.say(askRaw[40:])
		if got := c.read(t); got.status != 429 {
			t.Errorf("the request in two parts: got %s, want status 429", got)
		}
	})
}

// A body of 100 MB is refused by its announced size, whether or not it is sent, and even to a
// client that reads no answer before it has sent a few megabytes.
func TestHugeBody(t *testing.T) {
	const announced = "POST /v1/check HTTP/1.1\r\nHost: t\r\nContent-Length: 104857600\r\n"
	bothWays(t, nil, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		started := time.Now()
		silent := dial()
		silent.say(announced + "\r\n")
		wantProblem(t, silent.read(t), 413, "body-too-large", "")

		expecting := dial()
		expecting.say(announced + "Expect: 100-continue\r\n\r\n")
		got := expecting.read(t)
		if got.status == 100 {
			got = expecting.read(t)
		}
		wantProblem(t, got, 413, "body-too-large", "")

		part := bytes.Repeat([]byte(" "), 1<<20)
		deaf := dial()
		deaf.say(announced + "\r\n")
		for i := range 8 {
			if _, err := deaf.Write(part); err != nil {
				t.Fatalf("after %d MB: %v", i, err)
			}
		}
		wantProblem(t, deaf.read(t), 413, "body-too-large", "")

		sending := dial()
		sending.say(announced + "\r\n")
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 100 {
				if _, err := sending.Write(part); err != nil {
					return
				}
			}
		}()
		wantProblem(t, sending.read(t), 413, "body-too-large", "")
		<-sent
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 20<<20 {
			t.Errorf("%d bytes were allocated", grown)
		}
		if s.store.calls != 0 {
			t.Errorf("the store was asked %d times", s.store.calls)
		}
	})
}

// Clients that never finish a request neither disturb the others nor stay.
func TestSlowClients(t *testing.T) {
	const timeout = 700 * time.Millisecond
	bothWays(t, func(c *httpapi.Config) { c.ReadTimeout = timeout }, func(t *testing.T, s *sidecar, dial func() *rawConn) {
		var slow []*rawConn
		for i := range 500 {
			c := dial()
			c.say(askRaw[:len(askRaw)*(i%10)/10]) // nothing, a part of the header, a part of the body
			slow = append(slow, c)
		}
		dribbled := make(chan struct{})
		go func() {
			defer close(dribbled)
			c := slow[1]
			for range 100 {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(timeout / 20) // what makes the client slow
			}
			t.Error("a client that sends a byte now and then was never dropped")
		}()
		for range 50 {
			started := time.Now()
			c := dial()
			c.say(strings.Replace(askRaw, `{"limit":"per-user","key":"u"}`, `{"limit":"all"}               `, 1))
			if got := c.read(t); got.status != 200 || time.Since(started) > time.Second {
				t.Fatalf("another client waited %v for %s", time.Since(started), got)
			}
		}
		for _, c := range slow {
			if text, err := io.ReadAll(c.reader); err == nil && len(text) > 0 && !bytes.HasPrefix(text, []byte("HTTP/1.1 408 ")) {
				t.Fatalf("a slow client got %q", text)
			}
		}
		<-dribbled
	})
}

// A connection may rest between requests for longer than a request may take.
func TestIdleConnectionStays(t *testing.T) {
	s := start(t, func(c *httpapi.Config) { c.ReadTimeout = 100 * time.Millisecond })
	c := dial(t, "tcp", s.tcp)
	c.say(askRaw)
	c.read(t)
	time.Sleep(300 * time.Millisecond) // longer than the timeout that must not apply
	c.say(askRaw)
	if got := c.read(t); got.status != 200 {
		t.Errorf("got %s", got)
	}
}
