package main_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// answers stands for a running sidecar. It answers the policy or limit in a question with what is
// named so, and keeps the bodies that it was sent.
type answers struct {
	mu     sync.Mutex
	bodies []string // guarded by mu
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	a.mu.Lock()
	a.bodies = append(a.bodies, string(body))
	a.mu.Unlock()
	status := http.StatusNotFound
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/check":
	case strings.Contains(string(body), `"policy":"yes"`):
		status = http.StatusOK
	case strings.Contains(string(body), `"limit":"no"`):
		status = http.StatusTooManyRequests
	case strings.Contains(string(body), `"policy":"away"`):
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, http.StatusText(status)+"\n")
}

// take returns the bodies since the last call.
func (a *answers) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	bodies := strings.Join(a.bodies, " ")
	a.bodies = nil
	return bodies
}

func TestCheck(t *testing.T) {
	running := new(answers)
	server := httptest.NewServer(running)
	defer server.Close()
	addr := "--addr=" + server.Listener.Addr().String()
	tests := []struct {
		args   string
		code   int
		stdout string
		stderr string
		bodies string
	}{
		{"yes", 0, "OK\n", "", `{"policy":"yes"}`},
		{"yes user=u42 tenant=a=b", 0, "OK\n", "", `{"policy":"yes","attributes":{"tenant":"a=b","user":"u42"}}`},
		{"yes user= --cost 3", 0, "OK\n", "", `{"policy":"yes","attributes":{"user":""},"cost":3}`},
		{"--cost requests=0 yes --cost tokens=1200", 0, "OK\n", "", `{"policy":"yes","cost":{"requests":0,"tokens":1200}}`},
		{"--cost 0 yes -- --user=1 --b=2", 0, "OK\n", "", `{"policy":"yes","attributes":{"--b":"2","--user":"1"},"cost":0}`},
		{"no user=u", 1, "Too Many Requests\n", "", `{"policy":"no","attributes":{"user":"u"}} {"limit":"no","attributes":{"user":"u"}}`},
		{"--limit no", 1, "Too Many Requests\n", "", `{"limit":"no"}`},
		{"--policy no", 2, "Not Found\n", "sidecar: check: the sidecar answered 404 Not Found\n", `{"policy":"no"}`},
		{"neither", 2, "Not Found\n", "sidecar: check: the sidecar answered 404 Not Found\n", `{"policy":"neither"} {"limit":"neither"}`},
		{"away", 2, "Service Unavailable\n", "sidecar: check: the sidecar answered 503 Service Unavailable\n", `{"policy":"away"}`},
		{"", 2, "", "sidecar: check: name a policy or a limit; see sidecar check -h\n", ""},
		{"user=u42", 2, "", "sidecar: check: name a policy or a limit; see sidecar check -h\n", ""},
		{"yes user", 2, "", "sidecar: check: \"user\" is no attribute; write key=value\n", ""},
		{"yes a=1 a=2", 2, "", "sidecar: check: attribute \"a\" is there twice\n", ""},
		{"yes a=\xff", 2, "", "sidecar: check: attribute \"a\" is not UTF-8, which JSON cannot carry\n", ""},
		{"--policy yes --limit no", 2, "", "sidecar: check: give --policy or --limit, not both\n", ""},
		{"--cost -1 yes", 2, "", "is neither a whole number from 0 up nor unit=number", ""},
		{"--cost 1.5 yes", 2, "", "is neither a whole number from 0 up nor unit=number", ""},
		{"--cost 1 --cost tokens=1 yes", 2, "", "give either one number or a number for each unit", ""},
		{"--cost tokens=1 --cost 1 yes", 2, "", "give either one number or a number for each unit", ""},
		{"--cost tokens=1 --cost tokens=1 yes", 2, "", "unit \"tokens\" is there twice", ""},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			got := sidecar(t, append([]string{"check", addr}, strings.Fields(tt.args)...)...)
			got.want(t, tt.code, tt.stdout, tt.stderr)
			if bodies := running.take(); bodies != tt.bodies {
				t.Errorf("asked %s, want %s", bodies, tt.bodies)
			}
		})
	}
}

func TestCheckUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: new(answers)}}
	server.Start()
	defer server.Close()
	sidecar(t, "check", "--unix", path, "yes").want(t, 0, "OK\n", "")
	sidecar(t, "check", "--unix", path, "--limit", "no").want(t, 1, "Too Many Requests\n", "")
	sidecar(t, "check", "--unix", path+".not", "yes").want(t, 2, "", "no such file or directory")
}

func TestCheckNobodyThere(t *testing.T) {
	addr := freeAddr(t)
	sidecar(t, "check", "--addr", addr, "yes").want(t, 2, "", "connection refused")
	sidecar(t, "check", "--ready", "--admin", addr).want(t, 1, "", "connection refused")
}

// TestCheckTimeout pins that a sidecar that accepts and stays silent is given up.
func TestCheckTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	addr := listener.Addr().String()
	sidecar(t, "check", "--timeout=20ms", "--addr", addr, "yes").want(t, 2, "", "deadline exceeded")
	sidecar(t, "check", "--timeout=20ms", "--ready", "--admin", addr).want(t, 1, "", "deadline exceeded")
}

func TestCheckReady(t *testing.T) {
	var status atomic.Int32
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(int(status.Load()))
		}
		_, _ = io.WriteString(w, "detail\n")
	}))
	defer server.Close()
	admin := server.Listener.Addr().String()
	sidecar(t, "check", "--ready", "--admin", admin).want(t, 0, "detail\n", "")
	status.Store(http.StatusServiceUnavailable)
	sidecar(t, "check", "--ready", "--admin", admin).want(t, 1, "detail\n", "")
	sidecar(t, "check", "--ready", "chat").want(t, 2, "", "sidecar: check: --ready takes no further arguments\n")
}

// freeAddr returns an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
