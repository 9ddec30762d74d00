//go:build !linux

package load

import "time"

// Pause sleeps for d, as exactly as the runtime does.
func Pause(d time.Duration) { time.Sleep(d) }
