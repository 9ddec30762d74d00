package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clockSource is a library that is loaded before all others, and sets a process's wall clock off.
//
//go:embed testdata/clock.c
var clockSource []byte

// WithClock gives the server a wall clock of its own, which SetClock sets. It needs a C compiler, as
// the race detector does, and a server that is linked dynamically.
func WithClock() Option {
	return func(s *settings) { s.ownClock = true }
}

// clock is what a server with a clock of its own needs in its environment.
type clock struct{ library, offset string }

// buildClock compiles the library into dir.
func buildClock(dir string) (*clock, error) {
	c := &clock{filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock")}
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if err := c.set(0); err != nil {
		return nil, err
	}
	compiler, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		return nil, fmt.Errorf("go env CC: %w", err)
	}
	words := append(strings.Fields(string(compiler)), "-shared", "-fPIC", "-O1", "-o", c.library, source)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the clock: %w: %s", err, out)
	}
	return c, nil
}

// set writes in place: the server has the file in its memory.
func (c *clock) set(off time.Duration) error {
	file, err := os.OpenFile(c.offset, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(off.Microseconds())), 0)
	return errors.Join(err, file.Close())
}

func (c *clock) environ() []string {
	if c == nil {
		return nil
	}
	return append(os.Environ(), "LD_PRELOAD="+c.library, "REDISTEST_CLOCK="+c.offset)
}

// SetClock makes it now at a server that was started WithClock; its clock goes on from there.
func (s *Server) SetClock(now time.Time) {
	if err := s.clock.set(time.Until(now)); err != nil {
		s.t.Errorf("redistest: set the clock: %v", err)
	}
}
