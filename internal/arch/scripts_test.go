package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The stand-ins for the commands of install-test-deps: bodies of shell scripts. Those of sudo
// write each command, and what it would read, to $LOG and run nothing, so the test leaves the
// machine as it is.
const (
	plainUser = "echo 1000"
	findsCC   = "echo true" // go env CC: a compiler that accepts anything
	lacksCC   = "echo no-such-compiler"
	records   = `shift; echo "$*" >>"$LOG"; case "$*" in tee*) while read -r line; do echo "  $line" >>"$LOG"; done; esac; `
	installs  = records + `case "$*" in *" install "*) cp "$BIN/cat" "$BIN/redis-server"; cp "$BIN/cat" "$BIN/wrk"; cp "$BIN/true" "$BIN/no-such-compiler"; esac`
	aptBreaks = records + `case "$*" in *" update") exit 100; esac`
	asks      = "exit 1" // sudo -n where a password is needed
)

func TestInstallTestDeps(t *testing.T) {
	const policy = "/usr/sbin/policy-rc.d"
	// On a machine with a policy of its own the script leaves that alone.
	forbid := []string{"tee " + policy, "  #!/bin/sh", "  exit 101", "chmod 755 " + policy}
	allow := []string{"rm -f " + policy}
	if _, err := os.Stat(policy); err == nil {
		forbid, allow = nil, nil
	}
	const (
		update  = "apt-get -o DPkg::Lock::Timeout=120 update"
		install = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "
	)
	tests := []struct {
		name     string
		commands map[string]string
		code     int
		says     string   // part of the output
		sudo     []string // what it is asked for
	}{
		{"all there", map[string]string{"redis-server": "", "wrk": "", "go": findsCC}, 0, "", nil},
		{"redis-server missing", map[string]string{"wrk": "", "go": findsCC, "id": plainUser, "sudo": installs, "apt-get": ""},
			0, "installing redis-server\n",
			slices.Concat([]string{"true"}, forbid, []string{update, install + "redis-server"}, allow)},
		{"compiler missing", map[string]string{"redis-server": "", "wrk": "", "go": lacksCC, "id": plainUser, "sudo": installs, "apt-get": ""},
			0, "installing gcc libc6-dev\n",
			slices.Concat([]string{"true"}, forbid, []string{update, install + "gcc libc6-dev"}, allow)},
		{"both missing", map[string]string{"wrk": "", "go": lacksCC, "id": plainUser, "sudo": installs, "apt-get": ""},
			0, "installing redis-server gcc libc6-dev\n",
			slices.Concat([]string{"true"}, forbid, []string{update, install + "redis-server gcc libc6-dev"}, allow)},
		{"wrk missing", map[string]string{"redis-server": "", "go": findsCC, "id": plainUser, "sudo": installs, "apt-get": ""},
			0, "installing wrk\n",
			slices.Concat([]string{"true"}, forbid, []string{update, install + "wrk"}, allow)},
		{"no apt-get", map[string]string{"wrk": "", "go": findsCC, "id": plainUser, "sudo": installs},
			1, "there is no apt-get to install redis-server with", nil},
		{"no sudo", map[string]string{"wrk": "", "go": findsCC, "id": plainUser, "apt-get": ""},
			1, "sudo asks for a password or is missing", nil},
		{"sudo asks", map[string]string{"wrk": "", "go": findsCC, "id": plainUser, "sudo": asks, "apt-get": ""},
			1, "sudo asks for a password or is missing", nil},
		{"apt-get fails", map[string]string{"wrk": "", "go": findsCC, "id": plainUser, "sudo": aptBreaks, "apt-get": ""},
			1, "apt-get update failed", slices.Concat([]string{"true"}, forbid, []string{update}, allow)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, output, asked := installTestDeps(t, tt.commands)
			if code != tt.code || !strings.Contains(output, tt.says) || tt.says == "" && output != "" {
				t.Errorf("got exit status %d and %q, want %d and %q", code, output, tt.code, tt.says)
			}
			if byHand := strings.Contains(output, "apt-get install redis-server gcc libc6-dev wrk"); byHand != (tt.code != 0) {
				t.Errorf("exit status %d, yet told what to install by hand: %t; output %q", code, byHand, output)
			}
			if got, want := strings.Join(asked, "\n"), strings.Join(tt.sudo, "\n"); got != want {
				t.Errorf("asked sudo for\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// installTestDeps runs the script where only the given commands exist (name → body of a shell
// script), and returns its exit status, what it printed, and what it asked of sudo.
func installTestDeps(t *testing.T, commands map[string]string) (code int, output string, asked []string) {
	t.Helper()
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	for name, body := range commands {
		write(t, filepath.Join(bin, name), "#!/bin/sh\n"+body+"\n", 0o755)
	}
	for _, name := range []string{"cat", "cp", "true"} { // what the script and the stand-ins use
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	script := exec.Command("/bin/sh", filepath.Join(repoRoot, "scripts", "install-test-deps"))
	script.Env = []string{"PATH=" + bin, "BIN=" + bin, "LOG=" + log}
	out, err := script.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if text := strings.TrimSuffix(string(lines), "\n"); text != "" {
		asked = strings.Split(text, "\n")
	}
	return script.ProcessState.ExitCode(), string(out), asked
}

// write makes a file and the folders above it.
func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
