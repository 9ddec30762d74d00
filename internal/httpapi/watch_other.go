//go:build !linux

package httpapi

import "syscall"

// hungUp reports whether the other end of a socket is closed, or will send nothing more. While
// something that it has sent before is unread, the end is not seen.
func hungUp(fd uintptr) bool {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
	return n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
}
