// Package process runs the programs of the benchmark, ends each by its own pid, and reads from /proc
// what they cost. It keeps nothing between processes.
package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait for a process: to be ready, to end.
const patience = 20 * time.Second

// Process is a running program.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended and its output is read

	mu   sync.Mutex
	last []string // guarded by mu; the last lines of its output
}

// Start runs a program and returns it with what ready made of the first line of its output, stdout and
// stderr alike, that ready accepts. When none comes in time, or the program ends, that is an error with
// its last words, and nothing is left running. A goroutine reads the output until the program's end.
func Start(ready func(line string) (string, bool), name string, args ...string) (*Process, string, error) {
	p := &Process{cmd: exec.Command(name, args...), exited: make(chan struct{})}
	p.cmd.SysProcAttr = dieWithParent()
	output, input := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = input, input
	if err := p.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("process: start %s: %w", name, err)
	}
	found := make(chan string, 1)
	go p.read(output, ready, found)
	go func() {
		_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
		_ = input.Close()
	}()
	var reason string
	select {
	case what := <-found:
		return p, what, nil
	case <-p.exited:
		reason = p.cmd.ProcessState.String()
	case <-time.After(patience):
		reason = fmt.Sprintf("not ready after %v", patience)
	}
	return nil, "", errors.Join(fmt.Errorf("process: start %s: %s: %s", name, reason, p.lastWords()), p.Stop())
}

// read keeps the last lines of the output, and hands out what ready makes of the first that it accepts.
func (p *Process) read(output io.Reader, ready func(string) (string, bool), found chan<- string) {
	defer close(p.exited)
	const kept = 20
	for lines := bufio.NewScanner(output); lines.Scan(); {
		p.mu.Lock()
		p.last = append(p.last[max(0, len(p.last)-kept):], lines.Text())
		p.mu.Unlock()
		if ready == nil {
			continue
		}
		if what, ok := ready(lines.Text()); ok {
			found <- what
			ready = nil
		}
	}
	_, _ = io.Copy(io.Discard, output) // after a line that is too long; the program must not block
}

func (p *Process) lastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.last, "\n")
}

// Stop asks the program to end and waits for it; one that does not end in time is killed, which is an
// error.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("process: stop %s: %w", p.cmd.Path, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
	}
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.exited
	return fmt.Errorf("process: stop %s: it ran on for %v after SIGTERM", p.cmd.Path, patience)
}
