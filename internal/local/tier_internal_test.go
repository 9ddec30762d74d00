package local

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestRefuseIsNewVerdict: what the tier writes in place is what a store makes of the same wait.
func TestRefuseIsNewVerdict(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{limit.TokenBucketAlgorithm, limit.LeakyBucketAlgorithm, limit.FixedWindowAlgorithm} {
		l := &limit.Limit{Name: "l", Settings: limit.Settings{Algorithm: algorithm}}
		c := limit.Charge{Limit: l, Settings: &l.Settings, Cost: 7}
		var v limit.Verdict
		refuse(&c, &v, 5, -3, 9)
		if want := limit.NewVerdict(&c, 0, 5, -3, 9); v != want {
			t.Errorf("%v: got %+v, want %+v", algorithm, v, want)
		}
	}
}
