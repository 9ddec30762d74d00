package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFaultKeysWithoutEnd: neither the memory nor the metrics grow with the number of keys.
func TestFaultKeysWithoutEnd(t *testing.T) {
	const most = 1000
	everywhere(t, fmt.Sprintf(`
local: {max_keys: %d}
limits:
  - {name: one, rate: 1/h, burst: 1, key: [user]}
`, most), func(s *site) {
		lines := func() int {
			_, text := get(s.t, "http://"+s.addr("admin")+"/metrics")
			return strings.Count(text, "\n")
		}
		ask := func(n int) {
			for i := range n / 100 {
				var checks strings.Builder
				for j := range 50 { // each twice, so that half of them are denied
					fmt.Fprintf(&checks, `,{"limit": "one", "key": "%0180d"}`, s.prefixed(i*50+j))
					fmt.Fprintf(&checks, `,{"limit": "one", "key": "%0180d"}`, s.prefixed(i*50+j))
				}
				if r := s.ask(s.t, `{"checks": [`+checks.String()[1:]+`]}`); r.status != http.StatusOK {
					s.t.Fatalf("got %d %s", r.status, r.text)
				}
			}
		}
		ask(100)
		before := lines()
		ask(20_000)
		if after := lines(); after > before+20 { // some results may be new
			s.t.Errorf("10,000 keys made %d lines of metrics from %d", after, before)
		}
		if n := s.metric(s.t, "tidegate_local_entries"); n > most || n < most/2 {
			s.t.Errorf("%v keys are kept, want up to %d", n, most)
		}
		if heap := s.metric(s.t, "go_memstats_heap_alloc_bytes"); heap > 32<<20 {
			s.t.Errorf("the heap has %v bytes", heap)
		}
		if denied := s.metric(s.t, `tidegate_decisions_total{limit="one",result="denied"`); denied < 10_000 {
			s.t.Errorf("%v denials are counted, want at least 10,000", denied)
		}
	})
}

// prefixed makes the keys of the sites different.
func (s *site) prefixed(n int) int { return n + 1_000_000*len(s.state) }

// TestFaultUncountedDenials: denials that never reach Redis are counted like those that do.
func TestFaultUncountedDenials(t *testing.T) {
	everywhere(t, `
limits:
  - {name: one, rate: 1/h, burst: 1, key: [user]}
policies:
  chat: {limits: [one]}
`, func(s *site) {
		s.take("one", "u1", 1)
		for range 100 {
			if r := s.ask(s.t, `{"policy": "chat", "attributes": {"user": "u1"}}`); r.status != http.StatusTooManyRequests {
				s.t.Errorf("got %d %s", r.status, r.text)
			}
		}
		decisions := s.metric(s.t, `tidegate_decisions_total{limit="one",result="denied"`)
		requests := s.metric(s.t, `tidegate_requests_total{policy="chat",result="denied"`)
		if decisions != 100 || requests != 100 {
			s.t.Errorf("%v and %v of 100 denials are counted", decisions, requests)
		}
		if local := s.metric(s.t, `tidegate_requests_total{policy="chat",result="denied",tier="local"}`); s.server != nil && local < 50 {
			s.t.Errorf("%v of 100 denials were local: nothing was tested", local)
		}
	})
}

// TestFaultOtherMethods: only the method that asks charges.
func TestFaultOtherMethods(t *testing.T) {
	everywhere(t, `
limits:
  - {name: one, rate: 1/h, burst: 1, key: [user]}
`, func(s *site) {
		const body = `{"limit": "one", "key": "u1"}`
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "post", "FOO"} {
			if r := s.send(s.t, method, "/v1/check", body); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") != "POST" {
				s.t.Errorf("%s: got %d %s, Allow %q, want 405", method, r.status, r.text, r.header.Get("Allow"))
			}
		}
		for _, path := range []string{"/v1/check/", "/v1/checks", "/V1/check", "//v1/check", "/x/../v1/check", "/", "/v1/check%2f"} {
			if r := s.send(s.t, http.MethodPost, path, body); r.status != http.StatusNotFound {
				s.t.Errorf("%s: got %d %s, want 404", path, r.status, r.text)
			}
		}
		s.wantPass(1, 0, "one", "u1")
	})
}

// TestFaultHugeAndSlowRequests: a huge body is refused before it is read, and clients that never
// end their headers keep nobody else waiting.
func TestFaultHugeAndSlowRequests(t *testing.T) {
	t.Parallel()
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits))
	for range 300 {
		conn, err := net.Dial("tcp", p.addr("http"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: side")
	}
	before := p.metric(t, "process_resident_memory_bytes")
	const size = 100 << 20
	start := time.Now()
	for _, head := range []string{fmt.Sprintf("Content-Length: %d", size), "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", p.addr("http"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: sidecar\r\n%s\r\n\r\n", head)
		go func() {
			chunk := []byte("10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n")
			for range size >> 16 {
				if _, err := conn.Write(chunk); err != nil {
					return // refused, as is right
				}
			}
		}()
		answer, _ := io.ReadAll(io.LimitReader(conn, 12)) // the connection may be reset after it
		if string(answer) != "HTTP/1.1 413" {
			t.Errorf("%s: got %q, want 413", head, answer)
		}
	}
	p.check(t, "chat", "user=u1").want(t, 0, `"allowed":true`, "")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the refusals and an answer took %v", took)
	}
	if grown := p.metric(t, "process_resident_memory_bytes") - before; grown > 64<<20 {
		t.Errorf("a body of 100 MiB took %v bytes", grown)
	}
}

// TestFaultKilledProcess: what kill -9 leaves, a socket file above all, does not stop the next
// start, and the socket is never open to others than its mode says.
func TestFaultKilledProcess(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	file := writeConfig(t, strings.Replace(listenAnywhere, "{", "{unix: "+socket+`, unix_mode: "0660", `, 1), limits)
	for range 3 {
		p := serve(t, "serve", "--config", file)
		if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o660 {
			t.Errorf("got %v %v, want a socket of mode 0660", info, err)
		}
		sidecar(t, "check", "--unix", socket, "chat", "user=u1").want(t, 0, `"allowed":true`, "")
		p.signal(t, syscall.SIGKILL)
		p.wantExit(t, -1)
		if _, err := os.Stat(socket); err != nil {
			t.Fatalf("kill -9 left no socket file: %v", err)
		}
	}
}

// TestFaultHalfWrittenConfig: a file that is being written is not applied, though what is there
// already would be a good config; nor is one with two limits of one name, of which no one knows
// which is meant.
func TestFaultHalfWrittenConfig(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, listenAnywhere, limits)
	p := serve(t, "serve", "--config", file)
	half := listenAnywhere + "limits:\n  - {name: per-user, rate: 1/h, burst: 1"
	out, err := os.Create(file) // written in place, and truncated first
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{half, "000, key: [user]}\n", "  - {name: other, rate: 1/h}\npolicies: {chat: {limits: [per-user]}}\n"} {
		if _, err := out.WriteString(part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(400 * time.Millisecond) // nothing is to happen for longer than a file must stand still
		p.check(t, "--policy", "chat", "user=u1", "--cost", "0").want(t, 0, `"limit":2,`, "")
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	p.wantMetric(t, `tidegate_config_reloads_total{result="success"} 1`)
	p.check(t, "--policy", "chat", "user=u1", "--cost", "0").want(t, 0, `"limit":1000,`, "")
	if n := p.metric(t, `tidegate_config_reloads_total{result="failure"}`); n > 0 {
		t.Errorf("half a file was looked at: %s", p.logged())
	}

	twice := "  - {name: per-user, rate: 9/h, key: [user]}\npolicies:"
	rewrite(t, file, listenAnywhere, strings.Replace(limits, "policies:", twice, 1))
	p.wantMetric(t, `tidegate_config_reloads_total{result="failure"} 1`)
	p.check(t, "--policy", "chat", "user=u1", "--cost", "0").want(t, 0, `"limit":1000,`, "")
	for name, text := range map[string]string{"the log": p.logged(), "/readyz": func() string { _, body := p.ready(t); return body }()} {
		if !strings.Contains(text, "per-user") || !strings.Contains(text, ":5:") && !strings.Contains(text, ":6:") {
			t.Errorf("%s does not say which name is there twice, and where: %s", name, text)
		}
	}
}
