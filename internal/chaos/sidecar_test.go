package chaos_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// patience bounds every wait for a process.
	patience = 20 * time.Second
	pollPace = 5 * time.Millisecond
)

// sidecar is a running sidecar.
type sidecar struct {
	t       *testing.T
	command *exec.Cmd
	started time.Time
	addr    string // of the data plane
	admin   string

	mu  sync.Mutex
	log strings.Builder // guarded by mu
}

// listenAnywhere is a config's listeners on free ports.
const listenAnywhere = "listen: {http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n"

// startSidecar runs a sidecar with the config until t ends, and waits until it listens.
func startSidecar(t *testing.T, config string) *sidecar {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(listenAnywhere+config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &sidecar{t: t, command: exec.Command(binary, "serve", "--config", file)}
	stderr, err := s.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.started = time.Now()
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	listening, ended := make(chan map[string]any, 1), make(chan struct{})
	go func() {
		defer close(ended)
		s.read(stderr, listening)
	}()
	t.Cleanup(func() {
		_ = s.command.Process.Kill()
		<-ended
		_ = s.command.Wait()
		if log := s.logged(); t.Failed() || strings.Contains(log, "panic") {
			t.Errorf("the sidecar's log:\n%s", log)
		}
	})
	select {
	case line := <-listening:
		s.addr, s.admin = fmt.Sprint(line["http"]), fmt.Sprint(line["admin"])
	case <-ended:
		t.Fatalf("the sidecar ended: %s", s.logged())
	case <-time.After(patience):
		t.Fatalf("the sidecar does not listen: %s", s.logged())
	}
	return s
}

// read keeps the log, and hands out the line that says where the sidecar listens.
func (s *sidecar) read(stderr io.Reader, listening chan<- map[string]any) {
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		s.mu.Lock()
		fmt.Fprintln(&s.log, lines.Text())
		s.mu.Unlock()
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == "listening" {
			listening <- line
		}
	}
}

func (s *sidecar) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// get returns the body of a GET on the admin plane.
func (s *sidecar) get(path string) string {
	s.t.Helper()
	response, err := http.Get("http://" + s.admin + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s %s, %v", path, response.Status, body, err)
	}
	return string(body)
}

// awaitRedis waits until the sidecar has reached Redis.
func (s *sidecar) awaitRedis() {
	s.t.Helper()
	s.await("Redis is reached", func() bool { return strings.Contains(s.get("/readyz"), `"reachable":true`) })
}

// await polls until met.
func (s *sidecar) await(what string, met func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(pollPace) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s; /readyz says %s", what, s.get("/readyz"))
		}
	}
}

// samples are the metrics of a process at one time, by name with its labels.
type samples map[string]float64

func (s *sidecar) metrics() samples {
	s.t.Helper()
	found := samples{}
	for line := range strings.Lines(s.get("/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			found[name] = n
		}
	}
	return found
}

// errorKinds returns the kinds of redis_errors_total that grew since before, and by how much.
func (m samples) errorKinds(before samples) map[string]int {
	grown := map[string]int{}
	for name, n := range m {
		if kind, ok := strings.CutPrefix(name, `tidegate_redis_errors_total{kind="`); ok && n > before[name] {
			grown[strings.TrimSuffix(kind, `"}`)] = int(n - before[name])
		}
	}
	return grown
}
