package httpapi

import "golang.org/x/sys/unix"

// hungUp reports whether the other end of a socket is closed, or will send nothing more. What it has
// sent before may still be unread: the end is seen behind it.
func hungUp(fd uintptr) bool {
	state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(state, 0)
		if err != unix.EINTR {
			return n > 0 // POLLHUP and POLLERR are always told
		}
	}
}
