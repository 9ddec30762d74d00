package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
)

// TestWatcherFindsEveryWayToChangeAFile changes a file twice in each way.
func TestWatcherFindsEveryWayToChangeAFile(t *testing.T) {
	ways := []struct {
		name   string
		gap    bool // for a moment there is no file, which a hasty watcher might see
		change func(t *testing.T, path, text string)
	}{
		{"in place", false, write},
		{"renamed over", false, func(t *testing.T, path, text string) {
			write(t, path+".tmp", text)
			check(t, os.Rename(path+".tmp", path))
		}},
		{"an editor that keeps a backup", true, func(t *testing.T, path, text string) {
			check(t, os.Rename(path, path+"~"))
			write(t, path, text)
			check(t, os.Remove(path+"~"))
		}},
		{"removed and made anew", true, func(t *testing.T, path, text string) {
			check(t, os.Remove(path))
			write(t, path, text)
		}},
		{"a link set anew", false, func(t *testing.T, path, text string) {
			target := filepath.Join(t.TempDir(), "elsewhere.yaml")
			write(t, target, text)
			check(t, os.Symlink(target, path+".tmp"))
			check(t, os.Rename(path+".tmp", path))
		}},
		{"the folder replaced", true, func(t *testing.T, path, text string) {
			folder := filepath.Dir(path)
			check(t, os.Mkdir(folder+".new", 0o755))
			write(t, filepath.Join(folder+".new", filepath.Base(path)), text)
			check(t, os.Rename(folder, filepath.Join(t.TempDir(), "old")))
			check(t, os.Rename(folder+".new", folder))
		}},
		{"an old modification time", false, func(t *testing.T, path, text string) {
			write(t, path, text)
			check(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		}},
	}
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "config")
			check(t, os.Mkdir(folder, 0o755))
			path := filepath.Join(folder, "tidegate.yaml")
			write(t, path, limits("a"))
			f := follow(t, path, func(w *config.Watcher) {
				if !way.gap {
					w.Hasten()
				}
			})
			for _, name := range []string{"b", "c"} {
				way.change(t, path, limits(name))
				f.want(t, "apply "+name)
			}
		})
	}
}

// TestWatcherNeedsNoNotices is in time without any.
func TestWatcherNeedsNoNotices(t *testing.T) {
	t.Parallel()
	m, path := newConfigMap(t)
	f := follow(t, path, (*config.Watcher).OnlyPoll)
	m.swap(t, limits("b"))
	f.want(t, "apply b")
}

// moveAbove gives the file of path the limit b by moving a folder two above it, which the watch of
// its own folder does not see.
func moveAbove(t *testing.T, path string) {
	t.Helper()
	above := filepath.Dir(filepath.Dir(path))
	check(t, os.Rename(above, above+".old"))
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, limits("b"))
}

func newDeepFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "above", "config", "tidegate.yaml")
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, limits("a"))
	return path
}

func TestWatcherFindsWhatNoNoticeTells(t *testing.T) {
	t.Parallel()
	path := newDeepFile(t)
	f := follow(t, path)
	moveAbove(t, path)
	f.want(t, "apply b")
}

func TestWatcherHearsOfTheFolderThatIsThereNow(t *testing.T) {
	t.Parallel()
	path := newDeepFile(t)
	f := follow(t, path, (*config.Watcher).OnlyNotices)
	f.Reload()
	f.want(t, "apply a")
	moveAbove(t, path)
	f.Reload()
	f.want(t, "apply b")
	write(t, path, limits("c"))
	f.want(t, "apply c")
}

func TestWatcherSameContentIsNoChange(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, (*config.Watcher).Hasten)
	check(t, os.Chtimes(path, time.Time{}, time.Now()))
	f.quiet(t, 200*time.Millisecond)
	write(t, path+".tmp", limits("a"))
	check(t, os.Rename(path+".tmp", path))
	f.quiet(t, 300*time.Millisecond)
	write(t, path, limits("b"))
	f.want(t, "apply b")
}

func TestWatcherAppliesWithoutLoad(t *testing.T) {
	t.Parallel()
	f := &follower{path: newFile(t), said: make(chan string, 10)}
	f.Watcher = config.NewWatcher(f.path, func(c *config.Config) { f.said <- "apply " + names(c) }, nil)
	f.run(t)
	f.want(t, "apply a")
}

// TestWatcherFindsAChangeBeforeRun changes the file between Load and Run.
func TestWatcherFindsAChangeBeforeRun(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, func(w *config.Watcher) {
		if c, err := w.Load(); err != nil || names(c) != "a" {
			t.Fatalf("Load: %v, %v", c, err)
		}
	})
	write(t, path, limits("b"))
	f.want(t, "apply b")
}

func TestWatcherRejectsEachBadContentOnce(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, (*config.Watcher).Hasten)
	write(t, path, limits("b", "b"))
	twice := `reject ` + path + `:4:11: limit "b" is there twice, first in line 2: give each its own name`
	f.want(t, twice)
	check(t, os.Chtimes(path, time.Time{}, time.Now()))
	write(t, path, limits("b", "b"))
	f.quiet(t, 300*time.Millisecond)
	write(t, path, "limits: []\n")
	f.want(t, "reject "+path+":1:9: limits is empty: write at least one limit")
	write(t, path, limits("b", "b"))
	f.want(t, twice)
	// What was in force all the time is said again: the file is good.
	write(t, path, limits("a"))
	f.want(t, "apply a")
}

func TestWatcherKeepsADeletedFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, (*config.Watcher).Hasten)
	gone := "reject config: read: stat " + path + ": no such file or directory"
	for _, name := range []string{"a", "b"} {
		check(t, os.Remove(path))
		f.want(t, gone)
		f.quiet(t, 300*time.Millisecond) // longer than from one look to the next
		write(t, path, limits(name))
		f.want(t, "apply "+name)
	}
	check(t, os.RemoveAll(filepath.Dir(path)))
	f.want(t, gone)
	check(t, os.MkdirAll(path, 0o755))
	f.want(t, "reject config: read: open "+path+": not a plain file: d---------")
	check(t, os.Remove(path))
	f.want(t, gone)
	write(t, path, limits("c"))
	f.want(t, "apply c")
}

func TestWatcherTakesTheLastOfManyWrites(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path)
	for i := range 50 {
		write(t, path, limits(fmt.Sprintf("n%d", i)))
	}
	for taken := 1; ; taken++ {
		select {
		case got := <-f.said:
			if got == "apply n49" {
				return
			}
			if taken == 3 {
				t.Fatalf("%d configs were taken, the latest %s", taken, got)
			}
		case <-time.After(inForce):
			t.Fatal("the last one was not taken")
		}
	}
}

// TestWatcherWaitsForAFileWrittenInTwoGoes has nobody write the file in the middle, so only time
// tells.
func TestWatcherWaitsForAFileWrittenInTwoGoes(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, func(w *config.Watcher) { w.SetSettle(time.Second) })
	write(t, path, limits("b"))
	f.quiet(t, 300*time.Millisecond)
	write(t, path, limits("b", "c"))
	f.quiet(t, 800*time.Millisecond) // the second go counts
	f.want(t, "apply b,c")
}

// TestReload reports at once, although nothing would settle within an hour.
func TestReload(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	f := follow(t, path, (*config.Watcher).OnlyReload)
	f.Reload()
	f.want(t, "apply a")
	write(t, path, "limits: []\n")
	for range 2 {
		f.Reload()
		f.want(t, "reject "+path+":1:9: limits is empty: write at least one limit")
	}
	check(t, os.Remove(path))
	f.Reload()
	f.want(t, "reject config: read: stat "+path+": no such file or directory")
}

func TestWatcherLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	w := config.NewWatcher(path, nil, nil)
	if _, err := w.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of no file: %v", err)
	}
	write(t, path, "limits: []\n")
	var problems config.Errors
	if _, err := w.Load(); !errors.As(err, &problems) {
		t.Errorf("Load of a bad file: %v", err)
	}
}
