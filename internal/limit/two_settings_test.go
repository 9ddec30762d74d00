package limit_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestTwoBurstsOnOneKey: a key that is asked under two bursts, as by an override on an attribute
// that is not in the key or by two versions of a config, admits no more than the larger burst and
// the refill, although it is full for the smaller one all the time.
func TestTwoBurstsOnOneKey(t *testing.T) {
	rate := limit.Rate{Tokens: 1, Micros: 100_000}
	for _, initial := range []struct{ small, large int64 }{{5, 500}, {0, 500}, {5, 0}} {
		small, err := limit.NewTokenBucket(rate, 5, initial.small)
		if err != nil {
			t.Fatal(err)
		}
		large, err := limit.NewTokenBucket(rate, 500, initial.large)
		if err != nil {
			t.Fatal(err)
		}
		var state limit.BucketState
		admitted := int64(0)
		ask := func(b *limit.TokenBucket, now, cost int64) {
			next, wait, moved := b.Decide(state, now, cost)
			if wait != 0 {
				cost = 0
			}
			if cost > 0 || moved {
				state = b.Charge(next, cost)
			}
			admitted += cost
		}
		const start = 1_780_000_000_000_000
		for now := int64(start); now < start+100_000_000; now += 1_000_000 {
			for cost := int64(512); cost > 0; cost /= 2 {
				ask(&large, now, cost)
			}
			ask(&small, now+150_000, 1) // which is full half a second later
		}
		if most := int64(500 + 1000); admitted > most {
			t.Errorf("initial %v: admitted %d in 100 s, want at most %d", initial, admitted, most)
		}
	}
}
