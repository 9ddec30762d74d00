package config

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writersOf finds out whether any process has the file, which is open for reading alone, open for
// writing or mapped so. The kernel grants a read lease only when none has. The lease is given back
// at once; who opens the file for writing in between waits for that, and the SIGIO that announces
// it is one that Go ignores. Leases are for the owner of a file and for root, and not every file
// system has them.
func writersOf(file *os.File) writers {
	fd := file.Fd()
	_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK) // closing the file gives it back, too
		return noWriter
	case errors.Is(err, unix.EAGAIN) && !remoteFile(fd):
		return someWriter
	}
	return unknownWriter
}

// remoteFile reports whether the file is one of NFS or SMB, which answer EAGAIN whenever the
// server has not lent the file to this client.
func remoteFile(fd uintptr) bool {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(fd), &system); err != nil {
		return true
	}
	switch uint32(system.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return true
	}
	return false
}
