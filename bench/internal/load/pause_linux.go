package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// Pause sleeps for d and at most some 100 µs longer. The runtime's own timers wait in whole milliseconds
// when nothing else is to be done; this takes a thread instead.
func Pause(d time.Duration) {
	if d <= 0 {
		return
	}
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
