package config

import "time"

// Hasten makes the watcher a few times faster, for a test that is not about time.
func (w *Watcher) Hasten() {
	w.pace.poll, w.pace.calm, w.pace.retry = 250*time.Millisecond, 10*time.Millisecond, 25*time.Millisecond
	w.pace.settle, w.pace.blind = 100*time.Millisecond, 250*time.Millisecond
}

// OnlyPoll makes the watcher ignore the system's notices.
func (w *Watcher) OnlyPoll() { w.pace.calm = time.Hour }

// OnlyNotices makes the watcher look at the file when the system tells of something.
func (w *Watcher) OnlyNotices() { w.pace.poll = time.Hour }

// OnlyReload makes the watcher look at the file when Reload says so, and settle nothing.
func (w *Watcher) OnlyReload() {
	w.pace.poll, w.pace.calm, w.pace.settle, w.pace.blind = time.Hour, time.Hour, time.Hour, time.Hour
}

// SetPatience sets how long a change may go on before that is reported.
func (w *Watcher) SetPatience(d time.Duration) { w.pace.patience = d }

// SetSettle sets how long a change must stand still before it is taken.
func (w *Watcher) SetSettle(d time.Duration) { w.pace.settle, w.pace.blind = d, d }
