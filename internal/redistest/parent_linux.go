package redistest

import "syscall"

// dieWithParent has the kernel kill a server whose test binary dies without its Cleanup, as it
// does at the end of go test -timeout. A server frozen by SIGSTOP dies as well.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
