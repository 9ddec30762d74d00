package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte(" fifteen bytes \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := func(http, admin, metrics string) string {
		return fmt.Sprintf("listen: {http: %q, admin: %q, metrics: %q}\n", http, admin, metrics)
	}
	const free = "127.0.0.1:0"
	redis := "redis: {addrs: [\"127.0.0.1:1\"], %s}\n"
	tests := []struct {
		name, config string
		stderr       string
	}{
		{"bad config", "limits: 5\nfrobnicate: 1\n", "2 problems in "},
		{"http taken", listen(taken.Addr().String(), free, free), "address already in use"},
		{"admin taken", listen(free, taken.Addr().String(), free), "listen.admin: listen tcp " + taken.Addr().String() + ": bind: address already in use"},
		{"metrics taken", listen(free, free, taken.Addr().String()), "listen.metrics: listen tcp " + taken.Addr().String() + ": bind: address already in use"},
		{"no secret", "tickets: {secret_file: /nowhere/secret}\n", "tickets.secret_file: open /nowhere/secret: no such file or directory"},
		{"short secret", "tickets: {secret_file: " + short + "}\n", "tickets.secret_file: " + short + " holds 13 bytes; a secret has at least 16"},
		{"no password", fmt.Sprintf(redis, "password_file: /nowhere/password"), "redis.password_file: open /nowhere/password: no such file or directory"},
		{"no CA", fmt.Sprintf(redis, "tls: {ca_file: /nowhere/ca}"), "redis.tls.ca_file: open /nowhere/ca: no such file or directory"},
		{"no certificate in the CA file", fmt.Sprintf(redis, "tls: {ca_file: "+short+"}"), "redis.tls.ca_file: " + short + " holds no PEM certificate"},
		{"bad certificate", fmt.Sprintf(redis, "tls: {cert_file: "+short+", key_file: "+short+"}"), "redis.tls.cert_file: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := tt.config
			if !strings.Contains(config, "listen:") {
				config += listenAnywhere
			}
			if !strings.Contains(config, "limits:") {
				config += limits
			}
			socket := filepath.Join(t.TempDir(), "api.sock")
			config = strings.Replace(config, "listen: {", "listen: {unix: "+socket+", ", 1)
			sidecar(t, "serve", "--config", writeConfig(t, config)).want(t, 1, "", tt.stderr)
			if left, err := os.ReadDir(filepath.Dir(socket)); err != nil || len(left) > 0 {
				t.Errorf("%v left behind, %v", left, err)
			}
		})
	}
	sidecar(t, "serve", "--config", "/nowhere.yaml").want(t, 1, "", "open /nowhere.yaml: no such file or directory\n")
}

func TestValidate(t *testing.T) {
	file := writeConfig(t, limits)
	sidecar(t, "validate", file).want(t, 0, "per-user", "")
	bad := writeConfig(t, "limits:\n  - {name: a, brust: 5}\nfrobnicate: 1\n")
	got := sidecar(t, "validate", bad)
	if !strings.Contains(got.stderr, bad+":2:15: ") || !strings.Contains(got.stderr, bad+":3:1: ") {
		t.Errorf("got %q, want the places of both problems", got.stderr)
	}
	if got.code != 1 || got.stdout != "" || !strings.HasSuffix(got.stderr, " problems in "+bad+"\n") {
		t.Errorf("got code %d, stdout %q, stderr %q, want 1, nothing, and a count at the end", got.code, got.stdout, got.stderr)
	}
	sidecar(t, "validate", "/nowhere.yaml").want(t, 1, "", "open /nowhere.yaml: no such file or directory\n")
}

// TestBuiltInExample runs what is served without a config, and the lines that it says to paste.
func TestBuiltInExample(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:7400", "127.0.0.1:7402"} { // those of the example
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skipf("somebody uses the example's address: %v", err)
		}
		_ = listener.Close()
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	p := serve(t)
	p.signal(t, syscall.SIGTERM)
	p.wantExit(t, 0)
	var lines []string
	for line := range strings.Lines(p.stdout.String()) {
		if strings.Contains(line, "curl") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("got %q, want three lines to paste", p.stdout.String())
	}
	serve(t)
	for i, status := range []string{"200 OK", "200 OK", "429 Too Many Requests"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", lines[i]).Output()
		if answer := string(out); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 "+status) || !strings.Contains(answer, "RateLimit: ") {
			t.Errorf("%s\ngot %s %v\nwant %s and its headers", lines[i], answer, err, status)
		}
	}
}

// TestUnixSocket pins what happens to what is at the socket's path: a dead socket is taken over,
// a live one is left alone, and the own one goes at the end.
func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "api.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	file := writeConfig(t, strings.Replace(listenAnywhere, "{", "{unix: "+socket+`, unix_mode: "0600", `, 1), limits)
	p := serve(t, "serve", "--config", file)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a socket of mode 0600", info, err)
	}
	if got := p.addr("unix"); got != socket {
		t.Errorf("the log says unix %s, want %s", got, socket)
	}
	sidecar(t, "check", "--unix", socket, "chat", "user=u1").want(t, 0, `"allowed":true`, "")
	sidecar(t, "serve", "--config", file).want(t, 1, "", "another process listens on it")
	sidecar(t, "check", "--unix", socket, "chat", "user=u1").want(t, 0, `"allowed":true`, "")
	p.signal(t, syscall.SIGTERM)
	p.wantExit(t, 0)
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("after the exit the socket gave %v, want none", err)
	}
}
