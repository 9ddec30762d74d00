package redistest_test

import (
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/redistest"
)

// receive reads one reply from a peer that sends text and closes.
func receive(t *testing.T, text string) (any, error) {
	t.Helper()
	near, far := net.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(far, text)
		_ = far.Close()
	}()
	conn := redistest.NewConn(near)
	defer func() {
		_ = conn.Close()
		<-sent
	}()
	return conn.Receive()
}

func TestReceive(t *testing.T) {
	tests := []struct {
		text string
		want any
	}{
		{"+OK\r\n", "OK"},
		{"-WRONGTYPE no\r\n", redistest.ReplyError("WRONGTYPE no")},
		{":-42\r\n", int64(-42)},
		{":9223372036854775807\r\n", int64(9223372036854775807)},
		{"$0\r\n\r\n", ""},
		{"$5\r\na\r\n\x00b\r\n", "a\r\n\x00b"},
		{"$-1\r\n", nil},
		{"*0\r\n", []any{}},
		{"*-1\r\n", nil},
		{"*4\r\n:1\r\n$-1\r\n*1\r\n+a\r\n-ERR b\r\n", []any{int64(1), nil, []any{"a"}, redistest.ReplyError("ERR b")}},
	}
	for _, tt := range tests {
		got, err := receive(t, tt.text)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("receive %q: got %#v, %v, want %#v", tt.text, got, err, tt.want)
		}
	}
}

func TestReceiveRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "EOF"},
		{"+OK", "unexpected EOF"},
		{"+OK\n", "not RESP2"},
		{"\r\n", "not RESP2"},
		{"%1\r\n", "not RESP2"},
		{":1.5\r\n", "not RESP2"},
		{"$-2\r\n", "not RESP2"},
		{"$x\r\n", "not RESP2"},
		{"$3\r\nabcd\r\n", "not RESP2"},
		{"$3\r\nab", "unexpected EOF"},
		{"$500000000\r\nab", "unexpected EOF"},
		{"*2\r\n:1\r\n", "unexpected EOF"},
		{"*1000000000\r\n:1\r\n", "unexpected EOF"},
		{strings.Repeat("*1\r\n", 40) + ":1\r\n", "nested"},
	}
	for _, tt := range tests {
		got, err := receive(t, tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("receive %q: got %#v, %v, want an error with %q", tt.text, got, err, tt.want)
		}
	}
}

func TestBulk(t *testing.T) {
	if got, want := redistest.Bulk("a\r\nb"), "$4\r\na\r\nb\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
