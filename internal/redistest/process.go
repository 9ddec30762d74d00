package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one run of redis-server. A nil process is one that does not run.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and its output read
}

// launchLocked writes the config, runs redis-server and waits until it answers. errPortTaken means that
// another port may work; after any error nothing runs.
func (s *Server) launchLocked() error {
	file := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(file, []byte(s.settings.config(s.dir, s.socket, s.port)), 0o600); err != nil {
		return err
	}
	p, err := startProcess(&s.output, s.clock.environ(), s.binary, append([]string{file}, s.settings.args...)...)
	if err != nil {
		return err
	}
	s.process = p
	if err := s.waitReady(p); err != nil {
		p.kill()
		if strings.Contains(s.output.String(), "Address already in use") {
			return errors.Join(errPortTaken, err)
		}
		return err
	}
	return nil
}

// waitReady polls the socket, which only this server can have bound, until PING is answered with
// PONG; an error such as LOADING is not that yet.
func (s *Server) waitReady(p *process) error {
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		reply, err := s.do([]string{"PING"})
		if reply == "PONG" {
			return nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("PING: %v", reply)
		}
		select {
		case <-p.exited:
			return fmt.Errorf("redis-server exited: %v", p.cmd.ProcessState)
		case <-time.After(pollPace):
		}
	}
	return fmt.Errorf("redis-server is not ready after %v: %w", patience, last)
}

// startProcess runs binary with its output going to out, in environ; nil is this process's. A goroutine waits for the end of the
// process; kill and stop join it.
func startProcess(out *tail, environ []string, binary string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	p.cmd.Env = environ
	p.cmd.Stdout = out
	p.cmd.Stderr = out
	p.cmd.SysProcAttr = dieWithParent()
	// A child that outlives a killed server, such as one that feeds a replica, holds its output.
	p.cmd.WaitDelay = time.Second
	out.reset()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the state is kept in cmd.ProcessState
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once, paused or not, and joins it.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails only when it has exited
	<-p.exited
}

// stop asks the process to end and joins it; one that does not end in time is killed.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}
	for _, sig := range []os.Signal{syscall.SIGCONT, syscall.SIGTERM} {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("redis-server ran on for %v after SIGTERM", patience)
	}
}

// pause sends SIGSTOP and waits until it has taken effect, which the kernel does not do.
func (p *process) pause() error {
	if !p.running() {
		return os.ErrProcessDone
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		if errors.Is(err, os.ErrNotExist) {
			return nil // a system without /proc
		}
		if err != nil {
			return err
		}
		// The state follows the command's name, which is in parentheses.
		if _, rest, _ := bytes.Cut(stat, []byte(") ")); bytes.HasPrefix(rest, []byte("T")) {
			return nil
		}
	}
	return fmt.Errorf("redis-server ran on for %v after SIGSTOP", patience)
}

func (p *process) resume() error {
	if !p.running() {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

const (
	tailLines = 40
	tailBytes = 16 << 10
)

// tail keeps the last output of a process. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (o *tail) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if extra := len(o.text) - tailBytes; extra > 0 {
		o.text = append([]byte(nil), o.text[extra:]...)
	}
	return len(b), nil
}

func (o *tail) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = nil
}

// String is at most the last 40 lines, the first of which may be cut.
func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(o.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
