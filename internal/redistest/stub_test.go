package redistest_test

import (
	"errors"
	"io"
	"reflect"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestStub(t *testing.T) {
	var mu sync.Mutex
	var commands [][]string
	stub := redistest.NewStub(t, func(command []string) string {
		mu.Lock()
		defer mu.Unlock()
		commands = append(commands, command)
		switch command[0] {
		case "GET":
			return "-LOADING Redis is loading the dataset in memory\r\n"
		case "INFO":
			return redistest.Bulk("redis_version:3.2.0\r\n")
		case "BLPOP":
			return ""
		}
		return "+OK\r\n"
	})
	conn := dial(t, stub.Addr())
	expect(t, conn, redistest.ReplyError("LOADING Redis is loading the dataset in memory"), "GET", "a\r\nb")
	expect(t, conn, "redis_version:3.2.0\r\n", "INFO")
	send(t, conn, "BLPOP", "k", "0")
	expectSilence(t, conn)
	expect(t, conn, "OK", "PING", "") // the connection stays open
	expect(t, dial(t, stub.Addr()), "OK", "PING")
	mu.Lock()
	defer mu.Unlock()
	want := [][]string{{"GET", "a\r\nb"}, {"INFO"}, {"BLPOP", "k", "0"}, {"PING", ""}, {"PING"}}
	if !reflect.DeepEqual(commands, want) {
		t.Errorf("got %q, want %q", commands, want)
	}
	if got := stub.Commands(); got != int64(len(want)) {
		t.Errorf("got %d commands, want %d", got, len(want))
	}
}

func TestStubAnswersPipelinedCommandsInOrder(t *testing.T) {
	stub := redistest.NewStub(t, func(command []string) string { return redistest.Bulk(command[1]) })
	raw := dialRaw(t, stub.Addr())
	text := "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n*2\r\n$4\r\nECHO\r\n$1\r\nb\r\n*2\r\n$4\r\nEC"
	if _, err := io.WriteString(raw, text); err != nil {
		t.Fatal(err)
	}
	want := "$1\r\na\r\n$1\r\nb\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(raw, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestStubCutsOffOthers(t *testing.T) {
	stub := redistest.NewStub(t, func([]string) string { return "+OK\r\n" })
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "*0\r\n", "*1\r\n:1\r\n", "+PING\r\n", "*-1\r\n"} {
		raw := dialRaw(t, stub.Addr())
		if _, err := io.WriteString(raw, text); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(raw); len(got) > 0 {
			t.Errorf("%q: got %q, %v, want the end of the connection", text, got, err)
		}
	}
	if got := stub.Commands(); got != 0 {
		t.Errorf("got %d commands, want 0", got)
	}
}

func TestStubEndsWithItsTest(t *testing.T) {
	var conn *redistest.Conn
	t.Run("stub", func(st *testing.T) {
		stub := redistest.NewStub(st, func([]string) string { return "+OK\r\n" })
		conn = dial(t, stub.Addr())
		expect(t, conn, "OK", "PING")
	})
	if got, err := conn.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v, want the end of the connection", got, err)
	}
	expectNoGoroutines(t)
}
