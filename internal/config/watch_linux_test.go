package config_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
)

// writeHalf has another process open the file anew and write a first part into it, which is a
// config of its own. finish has it write the rest and close the file.
func writeHalf(t *testing.T, path, half string) (finish func(rest string)) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	check(t, err)
	writer := exec.Command("cat")
	writer.Stdout = file
	input, err := writer.StdinPipe()
	check(t, err)
	check(t, writer.Start())
	check(t, file.Close())
	_, err = input.Write([]byte(half))
	check(t, err)
	for size := int64(0); size < int64(len(half)); { // cat has not written it yet
		info, err := os.Stat(path)
		check(t, err)
		size = info.Size()
		runtime.Gosched()
	}
	return func(rest string) {
		_, err := input.Write([]byte(rest))
		check(t, err)
		check(t, input.Close())
		check(t, writer.Wait())
	}
}

func TestWatcherTakesNoHalfWrittenFile(t *testing.T) {
	whole := limits("a", "b")
	half := limits("a")
	tests := []struct {
		name   string
		reload bool
	}{
		{"by itself", false},
		{"on Reload", true},
	}
	t.Parallel()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			write(t, path, limits("before"))
			f := follow(t, path)
			finish := writeHalf(t, path, half)
			if tt.reload {
				f.Reload()
			}
			f.quiet(t, 1500*time.Millisecond)
			finish(strings.TrimPrefix(whole, half))
			f.want(t, "apply a,b")
		})
	}
}

func TestWatcherReportsAFileThatIsNeverFinished(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, (*config.Watcher).Hasten, func(w *config.Watcher) { w.SetPatience(300 * time.Millisecond) })
	finish := writeHalf(t, path, limits("b"))
	f.want(t, "reject config: reload: "+path+" has been unfinished for 300ms: another program has it open for writing")
	f.quiet(t, 400*time.Millisecond)
	finish("")
	f.want(t, "apply b")
}

// asNobody makes the file and its folder those of a user without rights, and the process that
// user, when it is root. The test must not be parallel.
func asNobody(t *testing.T, path string) {
	t.Helper()
	const root, nobody = 0, 65534
	if os.Geteuid() != root {
		return
	}
	check(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))
	check(t, os.Chown(filepath.Dir(path), nobody, nobody))
	check(t, os.Chown(path, nobody, nobody))
	check(t, syscall.Setresuid(-1, nobody, -1))
	t.Cleanup(func() { check(t, syscall.Setresuid(-1, root, -1)) })
}

func TestWatcherKeepsAFileThatItMayNotRead(t *testing.T) {
	path := newFile(t)
	asNobody(t, path)
	f := follow(t, path, (*config.Watcher).Hasten)
	check(t, os.Chmod(path, 0))
	f.want(t, "reject config: read: open "+path+": permission denied")
	check(t, os.Chmod(path, 0o644))
	f.want(t, "apply a")
	check(t, os.Chmod(filepath.Dir(path), 0))
	f.want(t, "reject config: read: stat "+path+": permission denied")
	check(t, os.Chmod(filepath.Dir(path), 0o755))
	f.want(t, "apply a")
}

// TestWatcherOfAnotherUsersFile has no way to know who writes the file, so only time tells.
func TestWatcherOfAnotherUsersFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file another user's")
	}
	path := newFile(t)
	asNobody(t, path)
	check(t, syscall.Setresuid(-1, 0, -1))
	check(t, os.Chown(path, 0, 0))
	check(t, os.Chmod(path, 0o666))
	check(t, syscall.Setresuid(-1, 65534, -1))
	f := follow(t, path)
	finish := writeHalf(t, path, limits("b"))
	f.Reload()
	f.quiet(t, 500*time.Millisecond)
	finish(strings.TrimPrefix(limits("b", "c"), limits("b")))
	f.want(t, "apply b,c")
}

// TestWatcherLeaksNothing counts what the process holds before and after 100 reloads, each behind
// a swapped link. It must not be parallel.
func TestWatcherLeaksNothing(t *testing.T) {
	m, path := newConfigMap(t)
	before := held(t)
	t.Run("reload", func(t *testing.T) {
		f := follow(t, path)
		reload := func(name string) {
			m.data = "" // keep the former folder, which would take its watch along
			m.swap(t, limits(name))
			f.Reload()
			f.want(t, "apply "+name)
		}
		reload("first")
		during := held(t)
		for i := range 100 {
			reload(fmt.Sprintf("n%d", i))
		}
		wantHeld(t, during)
	})
	wantHeld(t, before)
}

// holdings are what a process holds.
type holdings struct{ goroutines, files, watches int }

// held counts goroutines, open files, and the folders that inotify watches.
func held(t *testing.T) holdings {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	check(t, err)
	h := holdings{goroutines: runtime.NumGoroutine(), files: len(infos)}
	for _, info := range infos {
		text, _ := os.ReadFile(info) // the one of the listing itself is gone
		h.watches += strings.Count(string(text), "inotify wd:")
	}
	return h
}

// wantHeld waits until the process holds no more than that: a folder just left is let go with the
// next look.
func wantHeld(t *testing.T, most holdings) {
	t.Helper()
	for end := time.Now().Add(inForce); ; runtime.Gosched() {
		got := held(t)
		if got.goroutines <= most.goroutines && got.files <= most.files && got.watches <= most.watches {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got %+v, want at most %+v", got, most)
		}
	}
}
