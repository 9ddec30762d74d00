package local

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTellNeverWaits: also when Run has woken by its timer, and is about to look again, before it has seen what it
// was told. Who tells holds a shard that Run needs then.
func TestTellNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails when nothing can go on
		l, err := NewLeases(LeasesConfig{Timeout: time.Second, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l.idle.Store(true)
			l.tell()
		}
		if len(l.lent) != 1 {
			t.Error("Run was told nothing")
		}
	})
}
