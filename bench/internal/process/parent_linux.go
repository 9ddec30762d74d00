package process

import "syscall"

// dieWithParent has the kernel kill a program whose benchmark dies without stopping it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
