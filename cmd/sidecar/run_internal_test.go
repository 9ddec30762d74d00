package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
)

// TestRunEndsWithItsContext pins that serve gives everything back. It also has go test run the
// tests of the built binary again when its code has changed: results are cached by what is linked
// into the test, and the code of the command is by this call alone.
func TestRunEndsWithItsContext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "api.sock")
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `{listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0", unix: ` + socket + `}, limits: [{name: a, rate: 1/s}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var log strings.Builder
	if err := run(ctx, []string{"serve", "--config", file}, io.Discard, &log); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 3 {
		t.Errorf("logged %d lines, want one each for listening, the shutdown and the stop:\n%s", lines, log.String())
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket gave %v, want none", err)
	}
}

func TestWaits(t *testing.T) {
	tests := []struct{ timeout, api, rest time.Duration }{
		{10 * time.Second, 8 * time.Second, time.Second},
		{time.Hour, time.Hour - 2*time.Second, time.Second},
		{time.Second, 800 * time.Millisecond, 100 * time.Millisecond},
	}
	for _, tt := range tests {
		s := &sidecar{cfg: &config.Config{ShutdownTimeout: tt.timeout}}
		if api, rest := s.waits(); api != tt.api || rest != tt.rest {
			t.Errorf("a timeout of %v gives %v and %v, want %v and %v", tt.timeout, api, rest, tt.api, tt.rest)
		}
	}
}
