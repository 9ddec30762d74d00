package limit_test

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

const century = 36525 * 86_400_000_000 // µs

func TestShare(t *testing.T) {
	even := func(tokens, micros, burst, initial int64) limit.TokenBucket {
		return limit.TokenBucket{Tokens: tokens, Micros: micros, Grain: 1, Burst: burst, Initial: initial}
	}
	discrete := func(tokens, every, burst int64) limit.TokenBucket {
		return limit.TokenBucket{Tokens: 1, Micros: every, Grain: tokens, Burst: burst, Initial: burst}
	}
	tests := []struct {
		name  string
		whole limit.TokenBucket
		nodes int64
		want  limit.TokenBucket
	}{
		{"nobody counted", even(1, 10_000, 100, 100), 0, even(1, 10_000, 100, 100)},
		{"alone", even(1, 10_000, 100, 50), 1, even(1, 10_000, 100, 50)},
		{"a part", even(1, 10_000, 100, 50), 4, even(1, 40_000, 25, 12)},
		{"in lowest terms", even(3, 1_000, 10, 10), 3, even(1, 1_000, 3, 3)},
		{"rounded down", even(1, 10_000, 100, 100), 3, even(1, 30_000, 33, 33)},
		{"no burst", even(1, 10_000, 2, 2), 3, even(1, 30_000, 0, 0)},
		{"nothing ever", even(1, 1, 0, 0), 3, even(1, 1, 0, 0)},
		{"larger grains than nodes", discrete(10, 1_000_000, 25), 3, discrete(3, 1_000_000, 8)},
		{"smaller grains than nodes", discrete(2, 1_000_000, 25), 5, discrete(1, 3_000_000, 5)},
		{"too slow to count", even(1, century, 1, 1), 7, even(1, limit.MaxNumber/2, 0, 0)},
		{"discrete and too slow", discrete(2, century, 4), 7, discrete(1, limit.MaxNumber/2, 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.whole.Share(tt.nodes)
			if got.Overdraw != (tt.whole.Burst > 0) {
				t.Errorf("overdraw is %v for a burst of %d", got.Overdraw, tt.whole.Burst)
			}
			got.Overdraw, got.Lowest = false, 0
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// gained returns the tokens that an empty bucket without an upper end gains in span µs.
func gained(b *limit.TokenBucket, span int64) *big.Int {
	n := new(big.Int).Mul(big.NewInt(span), big.NewInt(b.Tokens))
	n.Div(n, big.NewInt(b.Micros))
	return n.Mul(n, big.NewInt(b.Grain))
}

// TestSharesAddUp: n shares never hold or gain more than the whole, in any time that matters, and
// not much less either.
func TestSharesAddUp(t *testing.T) {
	for seed := range traces(20_000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 11))
		b, n := randomBucket(rng), 2+rng.Int64N(6)
		if rng.IntN(4) == 0 {
			n = spread(rng, 2, 1000)
		}
		s := b.Share(n)
		if s.Burst*n > b.Burst || s.Initial*n > b.Initial || (s.Burst+1)*n <= b.Burst {
			t.Fatalf("%d of %+v hold %+v each", n, b, s)
		}
		if s.Tokens <= 0 || s.Micros <= 0 || s.Grain <= 0 || s.Micros > limit.MaxNumber/(s.Tokens+1) {
			t.Fatalf("%d of %+v: %+v leaves the exact integers", n, b, s)
		}
		for range 20 {
			span := spread(rng, 1, century)
			if rng.IntN(2) == 0 { // just as a share gains something
				span = min(century, span/s.Micros*s.Micros+s.Micros)
			}
			all := new(big.Int).Mul(gained(&s, span), big.NewInt(n))
			if whole := gained(&b, span); all.Cmp(whole) > 0 {
				t.Fatalf("in %dµs %d of %+v gain %v of %v", span, n, b, all, whole)
			}
		}
		rate := big.NewRat(s.Tokens, s.Micros)
		rate.Mul(rate, big.NewRat(s.Grain*n, 1))
		half := big.NewRat(b.Tokens, b.Micros)
		if half.Mul(half, big.NewRat(b.Grain, 2)); rate.Cmp(half) < 0 {
			t.Fatalf("%d of %+v gain less than half of it", n, b)
		}
	}
}

// TestOverdraw: a share passes any cost of the whole when it is full, no other above what it
// holds, and is then in debt; waits are tight; a debt is never deeper than a century of refill.
func TestOverdraw(t *testing.T) {
	passed, denied := 0, 0
	for seed := range traces(20_000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 12))
		whole, n, now := randomBucket(rng), 1+rng.Int64N(7), int64(vectorStart)
		b := whole.Share(n)
		var s limit.BucketState
		for range 20 {
			now += spread(rng, 1, 1e12) - 1
			cost := min(randomCost(rng, &whole), whole.Burst)
			next, wait, moved := b.Decide(s, now, cost)
			if (wait == 0) != (next.Tokens >= min(cost, b.Burst)) || wait == limit.Never || wait < 0 {
				t.Fatalf("%+v holds %+v: cost %d waits %dµs", b, next, cost, wait)
			}
			if wait > century {
				t.Fatalf("%+v holds %+v: cost %d waits %dµs, over a century", b, next, cost, wait)
			}
			if wait > 0 {
				denied++
				if moved {
					s = b.Charge(next, 0)
				}
				if s.Micros == 0 {
					t.Fatalf("%+v, cost %d: a share that must fill is not stored", b, cost)
				}
				if _, again, _ := b.Decide(s, now+wait, cost); again != 0 {
					t.Fatalf("%+v holds %+v: cost %d waits %dµs and then %dµs", b, s, cost, wait, again)
				}
				if _, again, _ := b.Decide(s, now+wait-1, cost); again != 1 {
					t.Fatalf("%+v holds %+v: cost %d waits %dµs, but %dµs before its end", b, s, cost, wait, again)
				}
			} else if cost > 0 {
				passed++
				s = b.Charge(next, cost)
				if s.Tokens != next.Tokens-cost {
					t.Fatalf("%d - %d left %d", next.Tokens, cost, s.Tokens)
				}
			}
		}
	}
	if passed < 1000 || denied < 1000 {
		t.Errorf("%d passed and %d were denied: the test sees too little", passed, denied)
	}
}

func TestOnlySharesOverdraw(t *testing.T) {
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1}, 10, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, wait, _ := b.Decide(limit.BucketState{}, vectorStart, 11); wait != limit.Never {
		t.Errorf("a cost above the burst of a whole bucket waits %d, want never", wait)
	}
}
