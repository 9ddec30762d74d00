//go:build !linux

package redistest

import "syscall"

// dieWithParent has no equivalent here: a test binary that dies without its Cleanup leaves its
// servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
