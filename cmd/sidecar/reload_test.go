package main_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
)

// rewrite replaces the config file as an editor does.
func rewrite(t *testing.T, file string, parts ...string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(strings.Join(parts, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// wantMetric waits until the metrics hold a line.
func (p *process) wantMetric(t *testing.T, line string) {
	t.Helper()
	for deadline := time.Now().Add(waitTime); ; time.Sleep(10 * time.Millisecond) {
		_, body := get(t, "http://"+p.addr("admin")+"/metrics")
		if strings.Contains(body, line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the metrics never said %q; log: %s", line, p.logged())
		}
	}
}

// TestReload: unchanged limits keep their state, changed ones act, a bad file changes nothing.
func TestReload(t *testing.T) {
	server := redistest.Start(t)
	for name, redis := range map[string]string{
		"embedded": "",
		"redis":    fmt.Sprintf("redis: {addrs: [%q], timeout: 10s}\n", server.Addr()),
	} {
		t.Run(name, func(t *testing.T) {
			head := listenAnywhere + redis
			file := writeConfig(t, head, limits)
			p := serve(t, "serve", "--config", file)
			for range 2 {
				p.check(t, "--limit", "per-user", "user=u1").want(t, 0, `"allowed":true`, "")
			}
			p.check(t, "--limit", "per-user", "user=u1").want(t, 1, `"allowed":false`, "")

			rewrite(t, file, head, limits, "  other: {limits: [per-user]}\n")
			p.wantMetric(t, `tidegate_config_reloads_total{result="success"} 1`)
			p.check(t, "other", "user=u1").want(t, 1, `"allowed":false`, "")

			rewrite(t, file, head, strings.ReplaceAll(limits, "burst: 2", "brust: 2"))
			p.wantMetric(t, `tidegate_config_reloads_total{result="failure"} 1`)
			p.check(t, "other", "user=u1").want(t, 1, `"allowed":false`, "")
			if status, body := p.ready(t); status != http.StatusOK || !strings.Contains(body, "brust") {
				t.Errorf("after a bad config readyz is %d %s, want 200 and the mistake", status, body)
			}

			// A faster rate never denies what the old one would have let pass.
			rewrite(t, file, head, strings.ReplaceAll(limits, "rate: 1/h", "rate: 1000/s"))
			p.wantMetric(t, `tidegate_config_reloads_total{result="success"} 2`)
			p.check(t, "--limit", "per-user", "user=u1").want(t, 0, `"allowed":true`, "")
			if _, body := p.ready(t); strings.Contains(body, "brust") {
				t.Errorf("after a good config readyz still says %s", body)
			}

			p.signal(t, syscall.SIGHUP)
			p.wantMetric(t, `tidegate_config_reloads_total{result="success"} 3`)
			rewrite(t, file, strings.Replace(head, "admin:", "allow_remote: true, admin:", 1), limits)
			p.wantMetric(t, `tidegate_config_reloads_total{result="success"} 4`)
			if _, body := p.ready(t); !strings.Contains(body, `"need_restart":["listen.allow_remote"]`) {
				t.Errorf("readyz does not say what needs a restart: %s", body)
			}
		})
	}
}

// TestReloadOfAnotherRedis: keys of two prefixes are not mixed.
func TestReloadOfAnotherRedis(t *testing.T) {
	server := redistest.Start(t)
	redis := fmt.Sprintf("redis: {addrs: [%q], timeout: 10s}\n", server.Addr())
	file := writeConfig(t, listenAnywhere, redis, limits)
	p := serve(t, "serve", "--config", file)
	rewrite(t, file, listenAnywhere, strings.Replace(redis, "timeout", "key_prefix: other, timeout", 1), limits)
	p.wantMetric(t, `tidegate_config_reloads_total{result="failure"} 1`)
	p.check(t, "chat", "user=u1").want(t, 0, `"tier":"redis"`, "")
	if keys := fmt.Sprint(server.Do(t, "KEYS", "other*")); keys != "[]" {
		t.Errorf("the new prefix is in force: %s", keys)
	}
}

// TestHangupWithoutAFile: SIGHUP does not end a sidecar that has no file.
func TestHangupWithoutAFile(t *testing.T) {
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits))
	p.signal(t, syscall.SIGHUP)
	p.wantMetric(t, `tidegate_config_reloads_total{result="success"} 1`)
	p.signal(t, syscall.SIGTERM)
	p.wantExit(t, 0)
}
