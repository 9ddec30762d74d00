//go:build !race

package httpapi_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/httpapi"
)

// TestAllocations bounds what a request leaves to the garbage collector, which is most of what the sidecar
// would do besides answering. The race detector makes pools forget at random.
func TestAllocations(t *testing.T) {
	server, rc := deniedLocally(t)
	if n := testing.AllocsPerRun(1000, func() { serve(t, server, rc, 429) }); n > 0 {
		t.Errorf("%v allocations for a local denial, want none", n)
	}
	server, rc = httpapi.New(httpapi.Config{Limiter: newLimiter(t, instantStore{})}), request(`{"limit":"per-user","key":"u42"}`)
	if n := testing.AllocsPerRun(1000, func() { serve(t, server, rc, 200) }); n > 1 {
		t.Errorf("%v allocations for a question to the store, want one: its key", n)
	}
}
