package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// waitTime bounds every wait for a process.
const waitTime = 20 * time.Second

// limits is the part of a config that the tests ask about: one request an hour after the first two.
const limits = `
limits:
  - {name: per-user, algorithm: token_bucket, rate: 1/h, burst: 2, key: [user]}
policies:
  chat: {limits: [per-user]}
`

// listenAnywhere is a config's listeners on free ports.
const listenAnywhere = `
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0", metrics: "127.0.0.1:0"}
`

// writeConfig makes a config file of the given parts.
func writeConfig(t *testing.T, parts ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(parts, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// process is a running sidecar.
type process struct {
	*exec.Cmd
	start  map[string]any // its first log line about listening
	stdout bytes.Buffer   // to be read when it has exited

	mu     sync.Mutex
	log    strings.Builder // guarded by mu
	ended  chan struct{}   // closed when stderr has ended
	exited bool
}

// serve runs a sidecar until the test's end, and waits until it listens.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: newCommand(t.Context(), args...), ended: make(chan struct{})}
	p.Stdout = &p.stdout
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan map[string]any, 1)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mu.Unlock()
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == "listening" {
				listening <- line
			}
		}
	}()
	t.Cleanup(func() {
		if !p.exited {
			_ = p.Process.Kill()
			<-p.ended
			_ = p.Wait()
		}
		if log := p.logged(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
			t.Error(log)
		}
	})
	select {
	case p.start = <-listening:
	case <-p.ended:
		t.Fatalf("the sidecar ended: %s", p.logged())
	case <-time.After(waitTime):
		t.Fatalf("the sidecar does not listen: %s", p.logged())
	}
	return p
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// addr returns where the sidecar listens, as its log says.
func (p *process) addr(name string) string { return fmt.Sprint(p.start[name]) }

// signal sends a signal.
func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// wantExit waits for the end of the process.
func (p *process) wantExit(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(waitTime):
		t.Fatalf("the sidecar does not end: %s", p.logged())
	}
	err := p.Wait()
	p.exited = true
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := p.ProcessState.ExitCode(); got != code {
		t.Errorf("got exit code %d, want %d; log: %s", got, code, p.logged())
	}
}

// get returns the status and the body of a GET.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// check asks the sidecar by its own command.
func (p *process) check(t *testing.T, args ...string) result {
	t.Helper()
	return sidecar(t, append([]string{"check", "--timeout=10s", "--addr", p.addr("http")}, args...)...)
}

func TestServe(t *testing.T) {
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits))
	for _, name := range []string{"chat", "per-user"} { // one bucket under both names
		p.check(t, name, "user=u1").want(t, 0, `"allowed":true`, "")
	}
	p.check(t, "chat", "user=u1").want(t, 1, `"allowed":false`, "")
	p.check(t, "chat", "user=u2").want(t, 0, `"allowed":true`, "")
	p.check(t, "chat").want(t, 2, `"status":400`, "sidecar: check: the sidecar answered 400 Bad Request\n")

	reset, err := http.Post("http://"+p.addr("admin")+"/v1/reset", "application/json",
		strings.NewReader(`{"limit":"per-user","attributes":{"user":"u1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = reset.Body.Close()
	if reset.StatusCode != http.StatusNoContent {
		t.Errorf("reset got %d, want 204", reset.StatusCode)
	}
	p.check(t, "chat", "user=u1").want(t, 0, `"allowed":true`, "")

	sidecar(t, "check", "--ready", "--admin", p.addr("admin")).want(t, 0, `"status":"ok"`, "")
	if _, body := get(t, "http://"+p.addr("metrics")+"/readyz"); !strings.Contains(body, `"store":{"kind":"embedded","reachable":true}`) {
		t.Errorf("got %s, want the embedded store", body)
	}
	_, metrics := get(t, "http://"+p.addr("metrics")+"/metrics")
	for _, want := range []string{
		`tidegate_requests_total{policy="chat",result="allowed",tier="embedded"} 3`,
		`tidegate_decisions_total{limit="per-user",result="denied",tier="embedded"} 1`,
		"go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if _, body := get(t, "http://"+p.addr("admin")+"/version"); !strings.Contains(body, `"version":"v9.8.7-test"`) {
		t.Errorf("got %s, want the build's version", body)
	}
	p.signal(t, syscall.SIGTERM)
	p.wantExit(t, 0)
	if log := p.logged(); strings.Contains(log, "u1") || !strings.Contains(log, `"msg":"stopped"`) {
		t.Errorf("logged %s, want the stop, and no attribute value", log)
	}
}

// TestServeDefaultCommand pins that the command may be left out.
func TestServeDefaultCommand(t *testing.T) {
	p := serve(t, "--config", writeConfig(t, listenAnywhere, limits))
	p.signal(t, syscall.SIGINT)
	p.wantExit(t, 0)
}

// TestShutdownAnswersWhatIsUnderWay pins the order of a shutdown: not ready at once, the request
// that has begun to arrive answered, exit 0.
func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits))
	const body = `{"policy":"chat","attributes":{"user":"u1"}}`
	conn, err := net.Dial("tcp", p.addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:10])
	// A second answered request shows that the first one's bytes have been read.
	p.check(t, "chat", "user=u2").want(t, 0, `"allowed":true`, "")
	p.signal(t, syscall.SIGTERM)
	ready := func() int {
		status, _ := get(t, "http://"+p.addr("admin")+"/readyz")
		return status
	}
	for deadline := time.Now().Add(waitTime); ready() != http.StatusServiceUnavailable; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sidecar stays ready")
		}
	}
	if _, err := io.WriteString(conn, body[10:]); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("the request under way got no answer: %v", err)
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("got %d %s %v, want 200", response.StatusCode, answer, err)
	}
	p.wantExit(t, 0)
}

// TestSecondSignal pins that who asks twice does not wait.
func TestSecondSignal(t *testing.T) {
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits, "shutdown_timeout: 1h\n"))
	conn, err := net.Dial("tcp", p.addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 100\r\n\r\n{")
	p.check(t, "chat", "user=u2").want(t, 0, `"allowed":true`, "")
	p.signal(t, syscall.SIGTERM)
	for deadline := time.Now().Add(waitTime); !strings.Contains(p.logged(), "shutting down"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sidecar does not shut down")
		}
	}
	p.signal(t, syscall.SIGTERM)
	p.wantExit(t, 1)
	if log := p.logged(); !strings.Contains(log, "sidecar: second signal: requests under way are abandoned\n") {
		t.Errorf("logged %s, want the second signal", log)
	}
}

// TestShutdownTimeout pins that a client that never ends its request does not hold up the exit.
func TestShutdownTimeout(t *testing.T) {
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits, "shutdown_timeout: 100ms\n"))
	conn, err := net.Dial("tcp", p.addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 100\r\n\r\n{")
	p.check(t, "chat", "user=u2").want(t, 0, `"allowed":true`, "")
	begin := time.Now()
	p.signal(t, syscall.SIGTERM)
	p.wantExit(t, 0)
	if elapsed := time.Since(begin); elapsed > 5*time.Second { // by itself the API gives a client 10s
		t.Errorf("the exit took %v with a timeout of 100ms", elapsed)
	}
}

func TestReadySoon(t *testing.T) {
	file := writeConfig(t, listenAnywhere, limits)
	begin := time.Now()
	p := serve(t, "serve", "--config", file)
	if status, body := get(t, "http://"+p.addr("admin")+"/readyz"); status != http.StatusOK {
		t.Errorf("got %d %s, want 200", status, body)
	}
	t.Logf("ready after %v", time.Since(begin))
}
