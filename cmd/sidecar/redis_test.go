package main_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
)

// writeFile makes a file with the given text and a line feed, and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ready returns what /readyz answers.
func (p *process) ready(t *testing.T) (status int, body string) {
	t.Helper()
	return get(t, "http://"+p.addr("admin")+"/readyz")
}

// wantReachable waits until /readyz says that Redis is reached.
func (p *process) wantReachable(t *testing.T) {
	t.Helper()
	const want = `"store":{"kind":"redis","reachable":true,`
	for deadline := time.Now().Add(waitTime); ; time.Sleep(5 * time.Millisecond) {
		status, body := p.ready(t)
		if status == http.StatusOK && strings.Contains(body, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d %s, want 200 and %s", status, body, want)
		}
	}
}

// TestServeRedis pins that sidecars on one Redis share a limit and its hashes, as a user whose
// password, like the secret, comes from a file.
func TestServeRedis(t *testing.T) {
	server := redistest.Start(t, redistest.WithUsers("default off", "teller on >open-sesame ~tt:* +@all"))
	config := writeConfig(t, listenAnywhere, limits, fmt.Sprintf(`
redis: {addrs: [%q], username: teller, password_file: %s, key_prefix: tt, timeout: 10s}
tickets: {secret_file: %s}
attributes: {user: {hash: true}}
`, server.Addr(), writeFile(t, "password", "open-sesame"), writeFile(t, "secret", "0123456789abcdef")))
	one, other := serve(t, "serve", "--config", config), serve(t, "serve", "--config", config)
	one.wantReachable(t)
	one.check(t, "chat", "user=u1").want(t, 0, `"tier":"redis"`, "")
	other.check(t, "chat", "user=u1").want(t, 0, `"tier":"redis"`, "")
	one.check(t, "chat", "user=u1").want(t, 1, `"allowed":false`, "")

	keys := fmt.Sprint(server.Do(t, "KEYS", "tt:*"))
	hash := limit.Secret("0123456789abcdef").Hash("user", "u1")
	if !strings.Contains(keys, hash) || strings.Contains(keys, "u1}") {
		t.Errorf("got keys %s, want the hash %s in place of u1", keys, hash)
	}
}

// TestServeRedisAway pins that a sidecar starts, is ready and answers without Redis.
func TestServeRedisAway(t *testing.T) {
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits,
		fmt.Sprintf("redis: {addrs: [%q]}\n", freeAddr(t))))
	if status, body := p.ready(t); status != http.StatusOK || !strings.Contains(body, `"kind":"redis","reachable":false,`) || !strings.Contains(body, `"error":"`) {
		t.Errorf("got %d %s, want 200 and that Redis is away", status, body)
	}
	sidecar(t, "check", "--ready", "--admin", p.addr("admin")).want(t, 0, `"status":"degraded"`, "")
	p.check(t, "chat", "user=u1").want(t, 0, `"degraded":true,"tier":"fallback"`, "")
}

func TestServeRedisTLS(t *testing.T) {
	certs := redistest.NewCertificates(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	settings := fmt.Sprintf("ca_file: %s, cert_file: %s, key_file: %s", certs.CAFile, certs.ClientCertFile, certs.ClientKeyFile)
	redis := func(tls string) string {
		return fmt.Sprintf("redis: {addrs: [%q], timeout: 10s, tls: {%s}}\n", server.Addr(), tls)
	}
	p := serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits, redis(settings)))
	p.check(t, "chat", "user=u1").want(t, 0, `"tier":"redis"`, "")

	stranger := redistest.NewCertificates(t)
	p = serve(t, "serve", "--config", writeConfig(t, listenAnywhere, limits,
		redis(strings.Replace(settings, certs.CAFile, stranger.CAFile, 1))))
	p.check(t, "chat", "user=u1").want(t, 0, `"tier":"fallback"`, "") // it trusts nobody there
}
