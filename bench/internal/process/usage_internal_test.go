package process

import (
	"testing"
	"time"
)

func TestCPUOf(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"7 (sidecar) S 1 7 7 0 -1 4194560 900 0 0 0 123 45 0 0 20 0 9 0 100 1 2":   1680 * time.Millisecond,
		"7 (a) (b c) R 1 7 7 0 -1 4194560 900 0 0 0 1 0 9 9 20 0 9 0 100 1 2":      10 * time.Millisecond,
		"7 (sidecar) S 1 7 7 0 -1 4194560 900 0 0 0 nothing 45 0 0 20 0 9 0 100 1": -1,
		"7 (sidecar) S 1": -1,
		"":                -1,
	} {
		got, err := cpuOf(stat)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %v, %v, want %v", stat, got, err, want)
		}
	}
}

func TestKilobytes(t *testing.T) {
	const status = "Name:\tsidecar\nVmHWM:\t   20480 kB\nVmRSS:\t   10 kB\n"
	for name, want := range map[string]int64{"VmHWM": 20 << 20, "VmRSS": 10 << 10, "VmSwap": 0, "Vm": 0} {
		got, err := kilobytes(status, name)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, want)
		}
	}
}

func TestScriptCalls(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0,
		"# Commandstats\r\ncmdstat_get:calls=9,usec=1\r\ncmdstat_evalsha:calls=40,usec=7,rejected_calls=3\r\n": 40,
		"cmdstat_eval:calls=1,usec=7\r\ncmdstat_evalsha:calls=2,usec=7\r\ncmdstat_fcall:calls=3,usec=7\r\n":    6,
		"cmdstat_evalsha_ro:calls=5,usec=7\r\n": 0,
		"cmdstat_evalsha:calls=x,usec=7\r\n":    -1,
		"cmdstat_evalsha\r\n":                   -1,
	} {
		got, err := scriptCalls(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}
