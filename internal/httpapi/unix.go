package httpapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	lockWait  = 5 * time.Second // for another process that starts or stops in the same folder
	lockPause = 10 * time.Millisecond
	probeTime = time.Second // for a connection to whoever may listen at the path
)

// ListenUnix listens on a Unix socket at path, whose folder must exist. Nobody can connect before
// the socket has the given mode, whatever the process's umask. A socket file on which nobody
// listens is taken over; anything else at path, a live socket included, is left alone and is an
// error. Of several that start on one path at once, one wins. Closing the listener removes the
// file if it is still the listener's own.
func ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	l, err := listenUnix(path, mode)
	if err != nil {
		return nil, fmt.Errorf("httpapi: listen on unix socket %s: %w", path, err)
	}
	return l, nil
}

func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	folder := filepath.Dir(path)
	unlock, err := lockFolder(folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := mayTake(path); err != nil {
		return nil, err
	}
	// The socket is made where nobody else can reach it, and moved to its place when it is ready.
	private, err := os.MkdirTemp(folder, ".tg-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	born := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: born, Net: "unix"})
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("the path is too long: %w", err)
	}
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	own, err := place(born, path, mode)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &unixListener{UnixListener: l, path: path, own: own}, nil
}

// place gives the socket at born its mode and moves it to path, over a dead one.
func place(born, path string, mode fs.FileMode) (fs.FileInfo, error) {
	if err := os.Chmod(born, mode.Perm()); err != nil {
		return nil, err
	}
	own, err := os.Lstat(born)
	if err != nil {
		return nil, err
	}
	return own, os.Rename(born, path)
}

// mayTake returns nil when there is nothing at path, or a socket on which nobody listens.
func mayTake(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is no socket; it is left alone: move it away or choose another path")
	}
	c, err := net.DialTimeout("unix", path, probeTime)
	switch {
	case err == nil:
		c.Close()
		return errors.New("another process listens on it; stop that one or choose another path")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return fmt.Errorf("there is a socket of which one cannot tell whether it is in use; it is left alone: %w", err)
	}
}

// lockFolder waits until no other process is about to place or remove a socket in folder. The
// lock is on the folder itself, so that it leaves no file behind, and ends with the process.
func lockFolder(folder string) (unlock func(), err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	for start := time.Now(); ; time.Sleep(lockPause) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Since(start) > lockWait {
			f.Close()
			return nil, fmt.Errorf("lock folder %s: %w", folder, err)
		}
	}
}

// unixListener removes its socket file when it is closed.
type unixListener struct {
	*net.UnixListener
	path string
	own  fs.FileInfo // the socket file as it was placed
	once sync.Once
}

// Addr returns the socket's address.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket file if it is still the listener's own, then stops listening. In this
// order, nobody can have taken the file over for dead, nor can its inode be another's by now.
func (l *unixListener) Close() error {
	var err error
	l.once.Do(func() { err = l.remove() })
	return errors.Join(err, l.UnixListener.Close())
}

func (l *unixListener) remove() error {
	unlock, err := lockFolder(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	defer unlock()
	now, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, l.own) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(l.path)
}
