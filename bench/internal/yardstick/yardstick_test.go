package yardstick_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/bench/internal/process"
	"github.com/tidegate/tidegate/bench/internal/yardstick"
)

const path = "/v1/check"

var question = []byte(`{"limit":"users","key":"ada"}`)

// serve runs a server until t ends and returns its address and Unix socket.
func serve(t *testing.T, cfg yardstick.Config) (address, socket string) {
	t.Helper()
	cfg.Unix = filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(t.Context())
	output, input := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- yardstick.Serve(ctx, cfg, input) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if _, err := fmt.Fscanf(output, "ready %s\n", &address); err != nil {
		t.Fatal(err)
	}
	return address, cfg.Unix
}

// TestReplay: what a server says is said again to the byte, but for the date, over both networks.
func TestReplay(t *testing.T) {
	for _, want := range []yardstick.Answer{
		{Status: 429, Headers: [][2]string{
			{"Date", ""}, {"Content-Type", "application/json"}, {"Retry-After", "30"}, {"retry-after-ms", "29977"},
			{"RateLimit", `"demo";r=0;t=30`}}, Body: `{"allowed":false}`},
		{Status: 200, Headers: [][2]string{{"Content-Type", "text/plain"}}, Body: "a\r\n\r\nb"},
	} {
		file := filepath.Join(t.TempDir(), "answer")
		if err := want.Write(file); err != nil {
			t.Fatal(err)
		}
		read, err := yardstick.ReadFile(file)
		if err != nil || !reflect.DeepEqual(read, want) {
			t.Errorf("from the file: got %+v, %v, want %+v", read, err, want)
		}
		address, socket := serve(t, yardstick.Config{Answer: read})
		got, err := yardstick.Record(address, path, question)
		if err != nil || !got.Equal(want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", socket)
		}}}
		answer, err := client.Post("http://bench"+path, "application/json", bytes.NewReader(question))
		if err != nil || answer.StatusCode != want.Status {
			t.Errorf("over the Unix socket: got %v, %v", answer, err)
			continue
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEqual(t *testing.T) {
	a := yardstick.Answer{Status: 200, Headers: [][2]string{{"A", "b"}}, Body: "c"}
	for _, b := range []yardstick.Answer{
		{Status: 201, Headers: a.Headers, Body: "c"}, {Status: 200, Headers: [][2]string{{"a", "b"}}, Body: "c"}, {Status: 200, Headers: a.Headers, Body: "d"},
	} {
		if a.Equal(b) || !b.Equal(b) {
			t.Errorf("%+v and %+v", a, b)
		}
	}
}

// TestLimiters: each takes one token of a key's bucket for a question, and a question without a key, or a
// denial, is no answer.
func TestLimiters(t *testing.T) {
	server, err := process.StartRedis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	redis := yardstick.Connect(server.Socket)
	t.Cleanup(func() { _ = redis.Close() })
	byScript, err := yardstick.ByScript(t.Context(), redis)
	if err != nil {
		t.Fatal(err)
	}
	answer := yardstick.Answer{Status: 200, Headers: [][2]string{{"Content-Type", "text/plain"}}, Body: "yes"}
	for name, limiter := range map[string]yardstick.Limiter{"script": byScript, "library": yardstick.ByLibrary(redis)} {
		address, _ := serve(t, yardstick.Config{Answer: answer, Limiter: limiter})
		for range 3 {
			if got, err := yardstick.Record(address, path, question); err != nil || !got.Equal(answer) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		}
		if got, err := yardstick.Record(address, path, []byte(`{"limit":"users"}`)); err != nil || got.Status != 503 {
			t.Errorf("%s: a question without a key: got %+v, %v", name, got, err)
		}
	}
	if left := redis.HGet(t.Context(), "bucket:ada", "tokens").Val(); !strings.HasPrefix(left, "999997.0") {
		t.Errorf("%s tokens are left after 3 of %d were taken", left, yardstick.Burst)
	}
	if wait := redis.PTTL(t.Context(), "bucket:ada").Val(); wait < 29*time.Second || wait > 30*time.Second {
		t.Errorf("the bucket lives for %v, want the 30s until it is full", wait)
	}
	if keys := redis.Keys(t.Context(), "rate:*").Val(); len(keys) != 1 {
		t.Errorf("redis_rate keeps %q", keys)
	}
	if err := redis.HSet(t.Context(), "bucket:ada", "tokens", "0.5").Err(); err != nil {
		t.Fatal(err)
	}
	if allowed, err := byScript(t.Context(), "ada"); err != nil || allowed {
		t.Errorf("half a token was enough: %v", err)
	}
}

func TestKeyOf(t *testing.T) {
	for question, want := range map[string]string{
		`{"limit":"a","key":"b"}`: "b", `{"key":"\u0062","cost":{"key":1}}`: "b", `{"cost":{"key":"b"}}`: "", `{"key":1}`: "", `[`: "",
	} {
		if got, err := yardstick.KeyOf([]byte(question)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", question, got, err, want)
		}
	}
}
