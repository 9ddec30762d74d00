package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns the processor time that the process has used so far, its own and the kernel's for it.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := p.proc("stat")
	if err != nil {
		return 0, err
	}
	return cpuOf(stat)
}

// cpuOf adds utime and stime, the 14th and 15th fields. The second, the command's name, may hold spaces
// and parentheses, so fields are counted from its end.
func cpuOf(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("process: cpu: %q is not the stat of a process", stat)
	}
	var ticks time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process: cpu: %w", err)
		}
		ticks += time.Duration(n)
	}
	return ticks * tick, nil
}

// Memory returns the bytes that are resident now, and the most that ever were.
func (p *Process) Memory() (now, peak int64, err error) {
	status, err := p.proc("status")
	if err != nil {
		return 0, 0, err
	}
	if now, err = kilobytes(status, "VmRSS"); err != nil {
		return 0, 0, err
	}
	peak, err = kilobytes(status, "VmHWM")
	return now, peak, err
}

// kilobytes finds "name:  1234 kB" in status, and returns bytes.
func kilobytes(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == name+":" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process: memory: there is no %s in %q", name, status)
}

func (p *Process) proc(file string) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
	if err != nil {
		return "", fmt.Errorf("process: %w", err)
	}
	return string(text), nil
}
