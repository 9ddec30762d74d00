package limit_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestForgetDropsWhatIsNotLent: a leased limit of which nothing is out is as absent after a reset as a strict one, also
// when what was out has been forgotten meanwhile.
func TestForgetDropsWhatIsNotLent(t *testing.T) {
	const hold = 1_000_000
	for name, s := range map[string]limit.Settings{
		"bucket": leasedBucketOf(t, 1, hold, 10, hold),
		"window": made(t)(made(t)(limit.NewFixedWindow(10, 10*hold)).Leased(hold)),
	} {
		var k key
		k.ask(vectorStart, &s, 0, 3)
		if st := k.state; s.Forget(&st, vectorStart) {
			t.Errorf("%s: kept although nothing is out", name)
		}
		k.lend(vectorStart, &s, 2)
		if st := k.state; !s.Forget(&st, vectorStart+2*hold-1) {
			t.Errorf("%s: dropped although something is out", name)
		}
		if st := k.state; s.Forget(&st, vectorStart+2*hold) {
			t.Errorf("%s: kept although what was out is forgotten", name)
		}
	}
}
