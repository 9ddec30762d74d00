//go:build !race

package local_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestLocalDenialDoesNotAllocate is about the whole path of a question. The race detector makes pools forget
// at random.
func TestLocalDenialDoesNotAllocate(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		t.Run(fmt.Sprintf("hashed=%v", hashed), func(t *testing.T) {
			path, query := denied(t, hashed)
			decision := make([]limit.Decision, 1)
			allocs := testing.AllocsPerRun(1000, func() {
				path.Decide(context.Background(), time.Now(), query, decision)
			})
			if allocs > 0 {
				t.Errorf("%v allocations for a local denial, want none", allocs)
			}
		})
	}
}

func TestLeaseDoesNotAllocate(t *testing.T) {
	path, query := lent(t)
	decision := make([]limit.Decision, 1)
	allocs := testing.AllocsPerRun(1000, func() {
		path.Decide(context.Background(), time.Now(), query, decision)
	})
	if allocs > 0 {
		t.Errorf("%v allocations for an answer from a lease, want none", allocs)
	}
}
