package limit_test

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// mirror is the arithmetic of TokenBucket, and so of the script, in big integers. Every operand
// and every result must stay within ±2^53, the integers that float64 holds.
type mirror struct {
	t *testing.T
	b *limit.TokenBucket
}

func (m mirror) in(n *big.Int) *big.Int {
	m.t.Helper()
	if n.CmpAbs(big.NewInt(limit.MaxNumber)) > 0 {
		m.t.Fatalf("%+v: %s is outside ±2^53", m.b, n)
	}
	return n
}

func (m mirror) of(n int64) *big.Int { m.t.Helper(); return m.in(big.NewInt(n)) }

func (m mirror) add(a, b *big.Int) *big.Int { m.t.Helper(); return m.in(new(big.Int).Add(a, b)) }
func (m mirror) sub(a, b *big.Int) *big.Int { m.t.Helper(); return m.in(new(big.Int).Sub(a, b)) }
func (m mirror) mul(a, b *big.Int) *big.Int { m.t.Helper(); return m.in(new(big.Int).Mul(a, b)) }

// divmod rounds down, as the script does; every divisor is above 0.
func (m mirror) divmod(a, b *big.Int) (q, r *big.Int) {
	m.t.Helper()
	q, r = new(big.Int).DivMod(a, b, new(big.Int))
	return m.in(q), m.in(r)
}

func (m mirror) ceil(a, b *big.Int) *big.Int {
	m.t.Helper()
	q, r := m.divmod(a, b)
	if r.Sign() > 0 {
		return m.add(q, big.NewInt(1))
	}
	return q
}

// gain is TokenBucket.timeToGain.
func (m mirror) gain(tokens, rem *big.Int) *big.Int {
	m.t.Helper()
	if tokens.Sign() <= 0 {
		return new(big.Int)
	}
	per, micros := m.of(m.b.Tokens), m.of(m.b.Micros)
	rounds, rest := m.divmod(m.ceil(tokens, m.of(m.b.Grain)), per)
	return m.add(m.mul(rounds, micros), m.ceil(m.sub(m.mul(rest, micros), rem), per))
}

// advance is TokenBucket.advance, for a state with the bucket's own Micros.
func (m mirror) advance(s limit.BucketState, now int64) (level, rem *big.Int) {
	m.t.Helper()
	level, rem = m.of(s.Tokens), m.of(s.Rem)
	burst := m.of(m.b.Burst)
	if s.Tokens >= m.b.Burst {
		level, rem = burst, new(big.Int)
	}
	if level.Cmp(m.of(m.b.Lowest)) < 0 {
		level = m.of(m.b.Lowest)
	}
	elapsed := m.sub(m.of(now), m.of(s.At))
	switch {
	case elapsed.Sign() < 0:
	case elapsed.Cmp(m.gain(m.sub(burst, level), rem)) >= 0:
		level, rem = burst, new(big.Int)
	default:
		micros := m.of(m.b.Micros)
		rounds, part := m.divmod(elapsed, micros)
		grains, rest := m.divmod(m.add(m.mul(part, m.of(m.b.Tokens)), rem), micros)
		grains = m.add(m.mul(rounds, m.of(m.b.Tokens)), grains)
		level, rem = m.add(level, m.mul(grains, m.of(m.b.Grain))), rest
	}
	return level, rem
}

// check compares one decision and its charge with the code's.
func (m mirror) check(s limit.BucketState, now, cost int64) {
	m.t.Helper()
	level, rem := m.advance(s, now)
	wait := big.NewInt(limit.Never)
	if cost <= m.b.Burst {
		wait = m.gain(m.sub(m.of(cost), level), rem)
	}
	next, got, _ := m.b.Decide(s, now, cost)
	if wait.Cmp(big.NewInt(got)) != 0 || level.Cmp(big.NewInt(next.Tokens)) != 0 || rem.Cmp(big.NewInt(next.Rem)) != 0 {
		m.t.Fatalf("%+v, state %+v at %d, cost %d: got %+v and wait %d, want %s, %s and %s", m.b, s, now, cost, next, got, level, rem, wait)
	}
	if got != 0 {
		cost = 0
	}
	charged := m.b.Charge(next, cost)
	until := m.add(m.of(now), m.gain(m.sub(m.of(m.b.Burst), m.sub(level, m.of(cost))), rem))
	if m.b.Initial < m.b.Burst {
		until = m.add(until, big.NewInt(86_400_000_000))
	}
	if least := big.NewInt(next.Until); until.Cmp(least) < 0 { // it never gets earlier
		until = least
	}
	if until.Cmp(big.NewInt(charged.Until)) != 0 || charged.Tokens != next.Tokens-cost {
		m.t.Fatalf("%+v: charged %+v with %d: got %+v, want it to live until %s", m.b, next, cost, charged, until)
	}
}

// boundary is a bucket whose numbers are the largest that the constructors take.
func boundary(t *testing.T, make func(burst int64) (limit.TokenBucket, error)) limit.TokenBucket {
	t.Helper()
	low, high := int64(0), int64(limit.MaxNumber+1) // low is taken, high is refused
	for low+1 < high {
		mid := (low + high) / 2
		if _, err := make(mid); err == nil {
			low = mid
		} else {
			high = mid
		}
	}
	b, err := make(low)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func boundaries(t *testing.T) []limit.TokenBucket {
	const years = 36525 * 86_400_000_000
	var all []limit.TokenBucket
	for _, micros := range []int64{1, 2, 3, 999_983, 1 << 26, 94_906_265, 1 << 27, 86_400_000_000, years - 1, years, 1 << 52} {
		for _, tokens := range []int64{1, 2, limit.MaxNumber/micros - 1} {
			rate := limit.Rate{Tokens: tokens, Micros: micros}
			if _, err := limit.NewTokenBucket(rate, 0, 0); err != nil {
				continue // (tokens + 1) × micros is above 2^53
			}
			all = append(all, boundary(t, func(burst int64) (limit.TokenBucket, error) { return limit.NewTokenBucket(rate, burst, burst/2) }))
		}
	}
	for _, interval := range []int64{1, 1000, 86_400_000_000, years} {
		for _, tokens := range []int64{1, 3, 1 << 26, 1<<26 + 1, limit.MaxNumber - 1, limit.MaxNumber} {
			all = append(all, boundary(t, func(burst int64) (limit.TokenBucket, error) {
				return limit.NewDiscreteBucket(tokens, interval, burst, 0)
			}))
		}
	}
	return all
}

// TestEveryIntermediateIsExact: at the very limits of what is accepted, with any state that can be
// stored, no intermediate number leaves the integers that Go and Lua share.
func TestEveryIntermediateIsExact(t *testing.T) {
	const now = 5_800_000_000_000_000 // in the year 2153: with a time to live of 100 years still below 2^53
	rng := rand.New(rand.NewPCG(1, 6))
	for _, b := range boundaries(t) {
		m := mirror{t, &b}
		levels := []int64{-limit.MaxNumber, b.Lowest - 1, b.Lowest, b.Lowest + 1, -1, 0, 1, b.Burst / 2, b.Burst - 1, b.Burst, limit.MaxNumber}
		for _, level := range levels {
			if level < -limit.MaxNumber {
				continue
			}
			for _, rem := range []int64{0, 1, b.Micros / 2, b.Micros - 1} {
				if rem >= b.Micros {
					continue
				}
				full := b.TimeToFull(limit.BucketState{Tokens: max(level, b.Lowest), Rem: rem})
				for _, age := range []int64{-1000, 0, 1, b.Micros - 1, b.Micros, full / 2, full - 1, full, full + 1, now, rng.Int64N(now)} {
					if age > now || testing.Short() && rng.IntN(8) > 0 {
						continue
					}
					s := limit.BucketState{Tokens: level, Rem: rem, At: now - age, Until: now + 1, Micros: b.Micros}
					for _, cost := range []int64{0, 1, b.Burst / 2, b.Burst, b.Burst + 1} {
						m.check(s, now, cost)
					}
				}
			}
		}
	}
}

// FuzzTokenBucket holds one decision to the rational reference and to the bounds, whatever the
// settings and the state.
func FuzzTokenBucket(f *testing.F) {
	f.Add(int64(1), int64(500_000), int64(0), int64(2), int64(2), int64(0), int64(0), int64(500_000), int64(499_999), int64(1))
	f.Add(int64(3), int64(7_000_000), int64(0), int64(3), int64(0), int64(-5), int64(6_999_999), int64(7_000_000), int64(-1), int64(3))
	f.Add(int64(0), int64(1_000_000), int64(3), int64(10), int64(10), int64(9), int64(1), int64(2_000_000), int64(5), int64(10))
	f.Add(int64(1<<53-1), int64(1), int64(0), int64(1<<53), int64(1), int64(0), int64(0), int64(1), int64(1), int64(1<<53))
	f.Fuzz(func(t *testing.T, tokens, micros, grain, burst, initial, level, rem, stateMicros, age, cost int64) {
		b, err := limit.NewTokenBucket(limit.Rate{Tokens: tokens, Micros: micros}, burst, initial)
		if grain != 0 {
			b, err = limit.NewDiscreteBucket(grain, micros, burst, initial)
		}
		const now = vectorStart
		switch {
		case err != nil, cost < 0 || cost > limit.MaxNumber, level < -limit.MaxNumber || level > limit.MaxNumber:
			return
		case stateMicros <= 0 || stateMicros > limit.MaxNumber || rem < 0 || rem >= stateMicros || age > now || age < -now:
			return
		}
		state := limit.BucketState{Tokens: level, Rem: rem, At: now - age, Until: max(now-age, now+1), Micros: stateMicros}
		if stateMicros == b.Micros {
			mirror{t, &b}.check(state, now, cost)
		}
		s := bucket{state}
		var r reference
		r.plant(state)
		if got, want := s.ask(&b, now, cost), r.ask(&b, now, cost); got != want {
			t.Errorf("%+v, state %+v, cost %d: got %+v, want %+v", b, state, cost, got, want)
		}
		if next, _, _ := b.Decide(state, now, 0); next.Rem < 0 || next.Rem >= b.Micros || next.Tokens > b.Burst || next.Tokens < b.Lowest {
			t.Errorf("%+v, state %+v: advanced to %+v", b, state, next)
		}
	})
}
