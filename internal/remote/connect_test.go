package remote_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/internal/remote"
)

func TestMissingRightsAreLoud(t *testing.T) {
	server := redistest.Start(t, redistest.WithUsers(
		"full on >pw ~rl:* -@all +eval +evalsha +time +mget +set +hmget +hset +pexpire +exists +del +get +ping +hello +script|load",
		"least on >pw ~rl:* -@all +eval +evalsha +time +mget +set +hmget +hset +pexpire +exists +ping",
		"noeval on >pw ~rl:* +@all -eval -evalsha",
		"notime on >pw ~rl:* +@all -time",
		"nokeys on >pw ~other:* +@all",
	))
	password := func() (string, error) { return "pw", nil }
	for user, works := range map[string]bool{"full": true, "least": true, "noeval": false, "notime": false, "nokeys": false} {
		t.Run(user, func(t *testing.T) {
			b := newBench(t, remote.Config{Addr: server.Addr(), Username: user, Password: password})
			d, err := b.ask(5*time.Second, charge(hourly("rights", 50, limit.HashState), user, 1), charge(hourly("rights2", 50, limit.StringState), user, 1))
			if works {
				if err != nil || d.Err != nil || !d.Allowed {
					t.Errorf("Decide: %v, %+v", err, d)
				}
				return
			}
			var failure *limit.StoreError
			if !errors.As(err, &failure) || failure.Failure != limit.FailureAuth {
				t.Errorf("error %v, want the failure auth", err)
			}
		})
	}
}

func TestRotatedPasswordIsPickedUp(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("old"))
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	b := newBench(t, remote.Config{Addr: server.Addr(), Password: func() (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}})
	c := charge(hourly("rotated", 50, limit.HashState), "a", 1)
	b.mustAsk(c)
	server.Do(t, "CONFIG", "SET", "requirepass", "new")
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	failed := 0
	for range 20 { // connections that the kill has closed fail once each
		if _, err := b.ask(time.Second, c); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("a wrong password was not noticed")
	}
	write("new")
	b.mustAsk(c)
}

func TestTLS(t *testing.T) {
	certs := redistest.NewCertificates(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	authority, err := os.ReadFile(certs.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	pair, err := tls.LoadX509KeyPair(certs.ClientCertFile, certs.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	c := charge(hourly("tls", 50, limit.HashState), "a", 1)
	good := newBench(t, remote.Config{Addr: server.Addr(), TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}})
	good.mustAsk(c)
	untrusting := newBench(t, remote.Config{Addr: server.Addr(), TLS: &tls.Config{Certificates: []tls.Certificate{pair}, ServerName: "localhost"}})
	if _, err := untrusting.ask(time.Second, c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server of an unknown authority: %v", err)
	}
}

// TestSecretIsShared: sidecars on one Redis agree on one secret, also when they start at once,
// and keep it when they restart.
func TestSecretIsShared(t *testing.T) {
	server := redistest.Start(t)
	var stores []*bench
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		b := newBench(t, remote.Config{Addr: server.Addr()})
		stores = append(stores, b)
		group.Go(func() { b.store.Run(ctx, noLimits) })
	}
	agreed := func() bool {
		for _, b := range stores {
			if b.store.Reachable() != nil || string(b.store.Secret()) != string(stores[0].store.Secret()) {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(10 * time.Second); !agreed(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stores do not agree on a secret")
		}
	}
	cancel()
	group.Wait()
	fixed := newBench(t, remote.Config{Addr: server.Addr(), Secret: limit.Secret("0123456789abcdef")})
	if string(fixed.store.Secret()) != "0123456789abcdef" {
		t.Error("a configured secret is not used")
	}
}

func TestMetricsAreLint(t *testing.T) {
	b := newBench(t, remote.Config{Addr: "127.0.0.1:1"})
	problems, err := testutil.GatherAndLint(b.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}
