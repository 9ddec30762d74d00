//go:build linux

package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWritersOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tests := []struct {
		name string
		flag int
		want writers
	}{
		{"read", os.O_RDONLY, noWriter},
		{"written", os.O_WRONLY, someWriter},
		{"read and written", os.O_RDWR, someWriter},
		{"appended to", os.O_WRONLY | os.O_APPEND, someWriter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			other, err := os.OpenFile(path, tt.flag, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := writersOf(reader); got != tt.want {
				t.Errorf("while open: got %d, want %d", got, tt.want)
			}
			other.Close()
			if got := writersOf(reader); got != noWriter {
				t.Errorf("when closed: got %d, want %d", got, noWriter)
			}
		})
	}
	t.Run("mapped", func(t *testing.T) {
		other, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := unix.Mmap(int(other.Fd()), 0, 4, unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
		if got := writersOf(reader); got != someWriter {
			t.Errorf("while mapped: got %d, want %d", got, someWriter)
		}
		if err := unix.Munmap(mapped); err != nil {
			t.Fatal(err)
		}
	})
	if lease, err := unix.FcntlInt(reader.Fd(), unix.F_GETLEASE, 0); err != nil || lease != unix.F_UNLCK {
		t.Errorf("a lease is left: %d, %v", lease, err)
	}
	proc, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	if got := writersOf(proc); got == someWriter {
		t.Error("a file that has no leases is said to be written")
	}
}

// TestALeaseThatIsBrokenHarmsNobody opens the file for writing while it is leased: the signal does
// not end this process, and the writer waits only until the lease is given back.
func TestALeaseThatIsBrokenHarmsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := unix.FcntlInt(reader.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("no leases here: %v", err)
	}
	opened := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			err = file.Close()
		}
		opened <- err
	}()
	for end := time.Now().Add(2 * time.Second); ; { // once the writer waits, the signal has been sent
		lease, err := unix.FcntlInt(reader.Fd(), unix.F_GETLEASE, 0)
		if err != nil || time.Now().After(end) {
			t.Fatalf("no writer: %v", err)
		}
		if lease == unix.F_UNLCK {
			break
		}
	}
	if _, err := unix.FcntlInt(reader.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Second):
		t.Error("the writer still waits")
	}
}
