package httpapi_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tidegate/tidegate/internal/httpapi"
)

// deadSocket leaves a socket file at path on which nobody listens.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := httpapi.ListenUnix(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// wantAlone checks that nothing is in path's folder but the given names.
func wantAlone(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

// The socket has its mode whenever it can be seen, under any umask, on a free path and in place
// of a dead socket that everybody could reach.
func TestUnixModeFromTheFirstMoment(t *testing.T) {
	for _, umask := range []int{0, 0o077} {
		for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
			old := syscall.Umask(umask)
			path := socketPath(t)
			var done atomic.Bool
			var watch sync.WaitGroup
			watch.Go(func() {
				for !done.Load() {
					if info, err := os.Lstat(path); err == nil && info.Mode().Perm() != mode {
						t.Errorf("umask %03o: seen with mode %v, want %v", umask, info.Mode().Perm(), mode)
						return
					}
				}
			})
			for range 50 {
				l, err := httpapi.ListenUnix(path, mode)
				if err != nil {
					t.Fatal(err)
				}
				if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|mode {
					t.Fatalf("got %v, %v, want mode %v", info, err, mode)
				}
				l.Close()
			}
			done.Store(true)
			watch.Wait()
			syscall.Umask(old)
		}
	}
}

func TestUnixTakesOverDeadSocket(t *testing.T) {
	path := socketPath(t)
	deadSocket(t, path)
	l := listenUnix(t, path)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := l.Addr().String(); got != path {
		t.Errorf("got address %s, want %s", got, path)
	}
	wantAlone(t, path, "api.sock")
	l.Close()
	wantAlone(t, path)
}

func TestUnixLeavesOthersAlone(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "no socket"},
		{"a folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "no socket"},
		{"a link, even to a dead socket", func(t *testing.T, path string) {
			deadSocket(t, path+"2")
			if err := os.Symlink(path+"2", path); err != nil {
				t.Fatal(err)
			}
		}, "no socket"},
		{"a live socket of another kind", func(t *testing.T, path string) {
			l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "cannot tell"},
		{"a live socket", func(t *testing.T, path string) { listenUnix(t, path) }, "another process listens"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := socketPath(t)
			tt.make(t, path)
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = httpapi.ListenUnix(path, 0o660)
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error that names the path and says %q", err, tt.says)
			}
			after, err := os.Lstat(path)
			if err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
				t.Errorf("the path was touched: %v, %v", after, err)
			}
		})
	}
}

func TestUnixRefusesImpossiblePaths(t *testing.T) {
	path := socketPath(t)
	for name, impossible := range map[string]string{
		"a missing folder": filepath.Join(filepath.Dir(path), "missing", "api.sock"),
		"a long path":      filepath.Join(filepath.Dir(path), strings.Repeat("x", 150), "api.sock"),
	} {
		if name == "a long path" {
			if err := os.Mkdir(filepath.Dir(impossible), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := httpapi.ListenUnix(impossible, 0o660); err == nil || !strings.Contains(err.Error(), impossible) {
			t.Errorf("%s: got %v, want an error that names the path", name, err)
		}
	}
}

// Of many that start at once on one path, on a dead socket or on none, exactly one wins.
func TestUnixOneWinner(t *testing.T) {
	for round := range 20 {
		path := socketPath(t)
		if round%2 == 0 {
			deadSocket(t, path)
		}
		var race sync.WaitGroup
		won := make(chan net.Listener, 16)
		for range cap(won) {
			race.Go(func() {
				if l, err := httpapi.ListenUnix(path, 0o660); err == nil {
					won <- l
				}
			})
		}
		race.Wait()
		close(won)
		if len(won) != 1 {
			t.Errorf("%d listeners won, want 1", len(won))
		}
		wantAlone(t, path, "api.sock")
		for l := range won {
			l.Close()
		}
		wantAlone(t, path)
	}
}

// A listener removes its own socket file only, not one that stands there by now.
func TestUnixRemovesOnlyItsOwn(t *testing.T) {
	path := socketPath(t)
	first := listenUnix(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listenUnix(t, path)
	first.Close()
	first.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the second socket is gone: %v", err)
	}
	c.Close()
}
