package config

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pace holds the times of a Watcher.
type pace struct {
	poll     time.Duration // between two looks when nothing seems to happen
	calm     time.Duration // from a notice of the system to the look that it causes
	settle   time.Duration // how long a change must stand still before it is taken
	blind    time.Duration // settle, where it is not known whether somebody is writing
	retry    time.Duration // between two looks at a file that somebody is writing
	patience time.Duration // how long a change may go on before that is reported
}

// defaultPace keeps the sum of poll, blind and calm below the 2 s in which a change is in force.
func defaultPace() pace {
	return pace{
		poll:     time.Second,
		calm:     50 * time.Millisecond,
		settle:   300 * time.Millisecond,
		blind:    800 * time.Millisecond,
		retry:    100 * time.Millisecond,
		patience: 10 * time.Second,
	}
}

// unfinished is what has been handled when a file took too long to be written.
const unfinished = "unfinished"

// Watcher follows a config file. It reports every new content once, within 2 s of the change: as
// a Config, or as the error that is wrong with it. Whichever way the file is replaced is found:
// written in place, renamed over, or by a symbolic link on the way to it that is set anew, as
// Kubernetes does with a ConfigMap.
//
// No file is taken half-written: its content must have stood still for 300 ms, and on Linux
// nobody may have it open for writing. That can be asked of local file systems by the owner of
// the file; elsewhere it must have stood still for 800 ms.
type Watcher struct {
	path   string
	apply  func(*Config)
	reject func(error)
	asked  chan struct{}
	pace   pace

	// What follows belongs to Load, and then to Run.
	handled string      // the content that was reported last
	last    observation // the latest, without its data
	since   time.Time   // when last was first seen
	changed time.Time   // when a content that is not handled was first seen; zero: there is none
	forced  bool        // Reload has asked and has no answer yet
}

// NewWatcher returns a Watcher of the file at path; it starts nothing. apply is called with each
// good config. reject is called with what is wrong with a bad one: [Errors], or why the file
// cannot be read, or that it has been unfinished for 10 s; the config in force then stays so. As
// the next call after that, apply says that the file is good again, though it may hold what it did
// before. Run makes all calls, one at a time, and does not look at the file during one.
func NewWatcher(path string, apply func(*Config), reject func(error)) *Watcher {
	return &Watcher{path: path, apply: apply, reject: reject, asked: make(chan struct{}, 1), pace: defaultPace()}
}

// Load is [Load] of the watched file, whatever state it is in, and makes Run report only what
// differs from it. Without it, Run applies the first content too. It must not be called once Run
// has been.
func (w *Watcher) Load() (*Config, error) {
	data, err := readFile(w.path)
	if err != nil {
		return nil, err
	}
	w.handled = digest(data)
	return Parse(w.path, data)
}

// Reload makes Run report the file at once, even when it has not changed. Only what somebody is
// still writing waits until it is finished, and so does a new content where that cannot be known.
// Reload does not wait; calls that come before the report share it. It is safe for concurrent use.
func (w *Watcher) Reload() {
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

// Run watches the file until ctx ends, and then returns nil. It must be called at most once.
func (w *Watcher) Run(ctx context.Context) error {
	t := newTrail(w.path)
	defer t.close()
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-w.asked:
			w.forced, due = true, time.Now()
		case event := <-t.events:
			if soon := time.Now().Add(w.pace.calm); t.concerns(event) && soon.Before(due) {
				due = soon
			}
		case <-t.errors: // notices were lost
			if soon := time.Now().Add(w.pace.calm); soon.Before(due) {
				due = soon
			}
		case <-timer.C:
			t.follow()
			due = time.Now().Add(w.check())
		}
		timer.Reset(time.Until(due))
	}
	return nil
}

// check looks at the file, reports what there is to report, and returns when to look again.
func (w *Watcher) check() time.Duration {
	now, seen := time.Now(), observe(w.path, w.handled)
	if !seen.same(w.last) || seen.writers == someWriter {
		w.since = now
	}
	w.last = seen
	w.last.data = nil
	known := seen.content == w.handled
	if known && !w.forced {
		w.changed = time.Time{}
		return w.pace.poll
	}
	if w.changed.IsZero() {
		w.changed = now
	}
	settle := w.pace.settle
	if seen.err == nil && seen.writers == unknownWriter {
		settle = w.pace.blind
	}
	rest := w.since.Add(settle).Sub(now)
	if rest <= 0 || w.forced && (known || seen.err != nil || seen.writers == noWriter) {
		w.report(seen)
		return w.pace.poll
	}
	if now.Sub(w.changed) >= w.pace.patience && w.handled != unfinished {
		w.complain(seen)
	}
	switch {
	case w.handled == unfinished:
		return w.pace.poll
	case seen.writers == someWriter:
		return w.pace.retry
	}
	return rest
}

// report hands on what was seen: the very bytes that stood still.
func (w *Watcher) report(seen observation) {
	w.handled, w.changed, w.forced = seen.content, time.Time{}, false
	if seen.err != nil {
		w.reject(seen.err)
		return
	}
	c, err := Parse(w.path, seen.data)
	if err != nil {
		w.reject(err)
		return
	}
	w.apply(c)
}

// complain says once that the file does not get finished.
func (w *Watcher) complain(seen observation) {
	why := "it changes all the time"
	if seen.writers == someWriter {
		why = "another program has it open for writing"
	}
	w.handled, w.forced = unfinished, false
	w.reject(fmt.Errorf("config: reload: %s has been unfinished for %v: %s", w.path, w.pace.patience, why))
}

// trail is the way to a file through symbolic links, and the system's notices of changes on it.
// A directory on it is watched, not the file: a watch of a file ends with the file. Notices only
// make things fast. Some never come, as for a file that is mounted alone, or for a directory moved
// away above the watched one, and where the system has none left to give, all of them; so Run
// looks every second in any case.
type trail struct {
	path   string
	notify *fsnotify.Watcher // nil: none to be had
	events <-chan fsnotify.Event
	errors <-chan error
	steps  []string          // what decides which file path means
	dirs   map[string]fileID // what is watched: the directories of steps
}

func newTrail(path string) *trail {
	t := &trail{path: path}
	if notify, err := fsnotify.NewWatcher(); err == nil {
		t.notify, t.events, t.errors = notify, notify.Events, notify.Errors
	}
	return t
}

func (t *trail) close() {
	if t.notify != nil {
		t.notify.Close() // it only closes a descriptor; there is nothing to lose
	}
}

// follow finds the way anew, and watches exactly the directories on it.
func (t *trail) follow() {
	if t.notify == nil {
		return
	}
	t.steps = steps(t.path)
	dirs := map[string]fileID{}
	for _, step := range t.steps {
		dir := filepath.Dir(step)
		if id, err := identify(dir); err == nil {
			dirs[dir] = id
		}
	}
	for _, dir := range t.notify.WatchList() {
		if id, wanted := dirs[dir]; !wanted || !id.same(t.dirs[dir]) {
			t.notify.Remove(dir) // an error means that it is gone already
		}
	}
	watched := t.notify.WatchList()
	for dir := range dirs {
		if !slices.Contains(watched, dir) {
			t.notify.Add(dir) // where that is not possible, looking every second is enough
		}
	}
	t.dirs = dirs
}

// concerns reports whether the event is one on the way, not of a neighbour.
func (t *trail) concerns(event fsnotify.Event) bool {
	name := filepath.Clean(event.Name)
	_, dir := t.dirs[name]
	return dir || slices.Contains(t.steps, name)
}
