package limit_test

import (
	"math"
	"math/big"
	"math/rand/v2"

	"github.com/tidegate/tidegate/internal/limit"
)

// reference is a token bucket in rational numbers: it knows no remainder, no rounds and no cut of
// the elapsed time, and so shares nothing with the arithmetic that it stands against.
type reference struct {
	used  bool
	level *big.Rat // whole tokens
	part  *big.Rat // of the next grain, from 0 to below 1
	at    int64
	until int64
	q     int64 // Micros of the settings at the last write
}

func ratOf(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floorOf(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean, and the denominator is positive
}

func ceilOf(r *big.Rat) int64 { return -floorOf(new(big.Rat).Neg(r)) }

func perMicro(b *limit.TokenBucket) *big.Rat { return big.NewRat(b.Tokens, b.Micros) }

// plant makes the reference hold what s says.
func (r *reference) plant(s limit.BucketState) {
	*r = reference{used: true, level: ratOf(s.Tokens), part: big.NewRat(s.Rem, s.Micros), at: s.At, until: s.Until, q: s.Micros}
}

// timeTo returns the µs from level and part until level is at least target.
func timeTo(b *limit.TokenBucket, level, part *big.Rat, target int64) int64 {
	missing := new(big.Rat).Sub(ratOf(target), level)
	if missing.Sign() <= 0 {
		return 0
	}
	grains := ratOf(ceilOf(missing.Quo(missing, ratOf(b.Grain))))
	return ceilOf(grains.Sub(grains, part).Quo(grains, perMicro(b)))
}

// advance returns the level and part at now.
func (r *reference) advance(b *limit.TokenBucket, now int64) (level, part *big.Rat) {
	level, part = new(big.Rat).Set(r.level), new(big.Rat).Set(r.part)
	if r.q != b.Micros { // the design's rule, in float64
		rem := math.Floor(float64(floorOf(new(big.Rat).Mul(part, ratOf(r.q)))) * float64(b.Micros) / float64(r.q))
		part = big.NewRat(min(int64(rem), b.Micros-1), b.Micros)
	}
	if level.Cmp(ratOf(b.Burst)) >= 0 {
		return ratOf(b.Burst), new(big.Rat)
	}
	if level.Cmp(ratOf(b.Lowest)) < 0 {
		level = ratOf(b.Lowest)
	}
	if now <= r.at {
		return level, part
	}
	part.Add(part, new(big.Rat).Mul(perMicro(b), ratOf(now-r.at)))
	whole := new(big.Int).Div(part.Num(), part.Denom())
	part.Sub(part, new(big.Rat).SetInt(whole))
	level.Add(level, new(big.Rat).Mul(new(big.Rat).SetInt(whole), ratOf(b.Grain)))
	if level.Cmp(ratOf(b.Burst)) >= 0 {
		return ratOf(b.Burst), new(big.Rat)
	}
	return level, part
}

// vectorWant is what a store answers; durations are in µs.
type vectorWant struct {
	Allowed, Never bool
	Remaining      int64
	RetryAfter     int64
	ResetAfter     int64
}

// bucket is one bucket in a store.
type bucket struct{ state limit.BucketState }

// ask decides, charges and reports as a store does.
func (s *bucket) ask(b *limit.TokenBucket, now, cost int64) vectorWant {
	settings := limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: *b}
	k := key{limit.State{Bucket: s.state}}
	v := k.ask(now, &settings, 0, cost)
	s.state = k.state.Bucket
	return vectorWant{v.Allowed, v.Never, v.Remaining, v.RetryAfter.Microseconds(), v.ResetAfter.Microseconds()}
}

// ask is bucket.ask by the reference.
func (r *reference) ask(b *limit.TokenBucket, now, cost int64) vectorWant {
	absent := !r.used || now >= r.until
	level, part := ratOf(b.Initial), new(big.Rat)
	if !absent {
		level, part = r.advance(b, now)
	}
	var want vectorWant
	switch {
	case cost > b.Burst:
		want.Never = true
	default:
		want.RetryAfter = timeTo(b, level, part, cost)
		want.Allowed = want.RetryAfter == 0
	}
	begins := absent && cost > 0 && !want.Never && b.Initial < b.Burst
	if want.Allowed && cost > 0 || begins || !absent && now < r.at {
		if want.Allowed {
			level.Sub(level, ratOf(cost))
		}
		until := now + timeTo(b, level, part, b.Burst)
		if b.Initial < b.Burst {
			until += 86_400_000_000
		}
		if !absent { // it never gets earlier
			until = max(until, r.until-max(0, r.at-now))
		}
		*r = reference{used: true, level: level, part: part, at: now, until: until, q: b.Micros}
	}
	want.Remaining = floorOf(level)
	want.ResetAfter = timeTo(b, level, part, b.Burst)
	return want
}

// spread returns a random number from low to high, evenly spread over its logarithm.
func spread(rng *rand.Rand, low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + rng.Float64()*(math.Log(high)-math.Log(low))))
}

// randomBucket returns settings of any kind that the constructors accept.
func randomBucket(rng *rand.Rand) limit.TokenBucket {
	for {
		burst := spread(rng, 1, 9e15)
		if rng.IntN(2) == 0 {
			burst = spread(rng, 1, 30)
		}
		initial := burst
		if rng.IntN(3) == 0 {
			initial = rng.Int64N(burst + 1)
		}
		var b limit.TokenBucket
		var err error
		if rng.IntN(3) == 0 {
			b, err = limit.NewDiscreteBucket(spread(rng, 1, 1e7), spread(rng, 1, 1e12), burst, initial)
		} else {
			b, err = limit.NewTokenBucket(limit.Rate{Tokens: spread(rng, 1, 1e9), Micros: spread(rng, 1, 1e11)}, burst, initial)
		}
		if err == nil {
			return b
		}
	}
}

// randomCost returns a cost from 0 to a little above the burst.
func randomCost(rng *rand.Rand, b *limit.TokenBucket) int64 {
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return b.Burst
	case 2:
		return b.Burst + spread(rng, 1, 10)
	case 3, 4:
		return 1
	default:
		return min(b.Burst, spread(rng, 1, float64(b.Burst)+1))
	}
}
