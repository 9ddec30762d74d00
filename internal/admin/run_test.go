package admin_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/admin"
)

func TestRunEnds(t *testing.T) {
	p := start(t, 0)
	if got := ask(t, "GET", p.admin+"/readyz", ""); got.status != 200 {
		t.Fatalf("got %d, want 200", got.status)
	}
	p.stop()
	if err := <-p.stopped; err != nil {
		t.Errorf("got %v, want nil", err)
	}
	for _, base := range []string{p.admin, p.metrics} {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://")); err == nil {
			_ = conn.Close()
			t.Errorf("%s still accepts connections", base)
		}
	}
}

// TestRunAnswersWhatIsUnderWay pins that the end of Run's context cancels no request.
func TestRunAnswersWhatIsUnderWay(t *testing.T) {
	p := start(t, 10*time.Second)
	p.store.entered, p.store.release = make(chan struct{}), make(chan struct{})
	status := make(chan int, 1)
	go func() {
		response, err := http.Post(p.admin+"/v1/reset", "application/json", strings.NewReader(`{"limit":"a"}`))
		if err != nil {
			status <- 0
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	<-p.store.entered
	p.stop()
	select {
	case got := <-status:
		t.Fatalf("got status %d before the store's answer", got)
	case err := <-p.stopped:
		t.Fatalf("Run returned %v with a request under way", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(p.store.release)
	if got := <-status; got != http.StatusNoContent {
		t.Errorf("got status %d, want 204", got)
	}
	if err := <-p.stopped; err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// TestRunCutsOffAtTheEnd pins that a profile under way does not hold up a shutdown.
func TestRunCutsOffAtTheEnd(t *testing.T) {
	p := start(t, 10*time.Millisecond)
	cut := make(chan error, 1)
	go func() {
		response, err := http.Get(p.admin + "/debug/pprof/trace?seconds=20")
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		cut <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(
		ask(t, "GET", p.admin+"/debug/pprof/goroutine?debug=2", "").body, "pprof.Trace"); {
		if time.Now().After(deadline) {
			t.Fatal("the trace did not begin")
		}
		time.Sleep(time.Millisecond)
	}
	p.stop()
	if err := <-p.stopped; err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := <-cut; err == nil {
		t.Error("the trace went on to its end, want it cut off")
	}
	if log := p.log.String(); !strings.Contains(log, "answers cut off at shutdown") {
		t.Errorf("logged %q, want that answers were cut off", log)
	}
}

// TestRunFails pins that a listener that breaks ends the plane with its cause.
func TestRunFails(t *testing.T) {
	broken := listen(t)
	_ = broken.Close()
	other := listen(t)
	server := admin.New(admin.Config{
		Listener: broken, MetricsListener: other, Gatherer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	err := server.Run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "admin: serve 127.0.0.1:") {
		t.Errorf("got %v, want admin: serve and the address", err)
	}
	if _, err := other.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the other listener gave %v, want it closed", err)
	}
}
