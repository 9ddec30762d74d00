//go:build !linux

package process

import "syscall"

// dieWithParent has no equivalent here; without /proc the benchmark does not get that far.
func dieWithParent() *syscall.SysProcAttr { return nil }
