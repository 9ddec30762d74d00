package limit

import (
	"fmt"
	"math"
	"math/big"
)

// day is how long a full bucket whose Initial is below its Burst is remembered, in microseconds.
const day = 86_400_000_000

// TokenBucket holds the settings of a token bucket. Every Micros microseconds it gains Tokens
// grains, evenly spread, and a grain is Grain tokens: 1 for a bucket that refills evenly. A
// discrete refill of k tokens every E microseconds is Tokens 1, Micros E, Grain k.
//
// A Burst of 0 lets nothing pass. Build one with NewTokenBucket: it keeps the arithmetic exact.
type TokenBucket struct {
	Tokens  int64
	Micros  int64
	Grain   int64
	Burst   int64 // the most that the bucket holds
	Initial int64 // what a new bucket holds; at most Burst
	Lowest  int64 // the deepest level that still refills within 100 years; a deeper state counts as this

	// Overdraw lets a cost above Burst pass when the bucket is full, and leave a debt. Only a
	// node's share has it: the whole limit could have passed that cost.
	Overdraw bool
}

// BucketState is the stored state of a token bucket. The zero state is that of a bucket that
// was never used.
type BucketState struct {
	Tokens int64 // whole tokens; negative when in debt
	Rem    int64 // the part of the next grain already gained, in 1/Micros: 0 ≤ Rem < Micros
	At     int64 // when Tokens and Rem were true, in µs since 1970
	Until  int64 // from this time on, in µs since 1970, the state counts as absent
	Micros int64 // the settings' Micros at the time of writing; 0 means absent
}

// NewTokenBucket returns the settings of a bucket that refills evenly at rate. A rate of 0 or a
// burst of 0 lets nothing pass. It is an error when a number is negative or above 2^53, when
// initial is above burst, or when the bucket would need more than 100 years from empty to full.
func NewTokenBucket(rate Rate, burst, initial int64) (TokenBucket, error) {
	return newBucket(TokenBucket{Tokens: rate.Tokens, Micros: rate.Micros, Grain: 1, Burst: burst, Initial: initial})
}

// NewDiscreteBucket returns the settings of a bucket that gains tokens all at once every
// interval microseconds. Zeros and errors are as in NewTokenBucket.
func NewDiscreteBucket(tokens, interval, burst, initial int64) (TokenBucket, error) {
	if tokens == 0 {
		return NewTokenBucket(Rate{}, burst, initial)
	}
	if tokens < 0 || tokens > MaxNumber || interval <= 0 || interval > maxFill {
		return TokenBucket{}, fmt.Errorf("limit: a refill of %d tokens every %dµs is out of range", tokens, interval)
	}
	return newBucket(TokenBucket{Tokens: 1, Micros: interval, Grain: tokens, Burst: burst, Initial: initial})
}

func newBucket(b TokenBucket) (TokenBucket, error) {
	if b.Burst < 0 || b.Burst > MaxNumber {
		return TokenBucket{}, fmt.Errorf("limit: a burst of %d is out of range", b.Burst)
	}
	if b.Initial < 0 || b.Initial > b.Burst {
		return TokenBucket{}, fmt.Errorf("limit: an initial level of %d is not between 0 and the burst of %d", b.Initial, b.Burst)
	}
	if b.Tokens == 0 {
		b = TokenBucket{Tokens: 1, Micros: 1, Grain: 1}
	}
	if b.Tokens <= 0 || b.Micros <= 0 || !inBounds(b.Tokens, b.Micros) {
		return TokenBucket{}, fmt.Errorf("limit: a rate of %d per %dµs is out of range", b.Tokens, b.Micros)
	}
	grains := grainsIn(b, maxFill, ceilDiv(MaxNumber, b.Grain))
	if ceilDiv(b.Burst, b.Grain) > grains {
		return TokenBucket{}, fmt.Errorf("%w: a burst of %d at %s", ErrTooSlow, b.Burst, Rate{b.Tokens * b.Grain, b.Micros})
	}
	b.Lowest = b.Burst - min(MaxNumber, grains*b.Grain)
	return b, nil
}

// Share returns the settings of one of n nodes that keep the limit together without a shared
// store: an n-th of the rate and of the burst, rounded down, which may leave a burst of 0. A cost
// above the share still passes when the share is full, and leaves a debt, unless nothing ever
// passes the whole. n below 2 is 1.
func (b TokenBucket) Share(n int64) TokenBucket {
	share := b
	share.Overdraw = b.Burst > 0
	if n < 2 || b.Burst == 0 {
		return share
	}
	share.Burst, share.Initial = b.Burst/n, b.Initial/n
	switch {
	case b.Grain > 1 && b.Grain >= n:
		share.Grain = b.Grain / n
	case b.Grain > 1:
		share.Grain, share.Micros = 1, b.Micros*ceilDiv(n, b.Grain)
	default:
		exact := new(big.Rat).SetFrac(big.NewInt(b.Tokens), new(big.Int).Mul(big.NewInt(b.Micros), big.NewInt(n)))
		rate := nearestBelow(exact)
		share.Tokens, share.Micros = rate.Tokens, rate.Micros
	}
	if share.Tokens == 0 || !inBounds(share.Tokens, share.Micros) {
		share.Tokens, share.Micros = 1, MaxNumber/2 // slower than any limit that NewTokenBucket takes
	}
	grains := grainsIn(share, maxFill, ceilDiv(MaxNumber, share.Grain))
	share.Lowest = share.Burst - min(MaxNumber, grains*share.Grain)
	return share
}

// grainsIn returns the whole grains gained in span microseconds, or most if they are more.
func grainsIn(b TokenBucket, span, most int64) int64 {
	whole, part := span/b.Micros, span%b.Micros
	if whole > most/b.Tokens {
		return most
	}
	return min(most, whole*b.Tokens+part*b.Tokens/b.Micros)
}

// Decide brings a state to now and says how long, in microseconds, cost must still wait: 0 when
// it passes, Never when it is above the burst. Waiting exactly that long passes. An absent state
// begins at Initial, one from the future moves back to now without gaining or losing, any other
// refills for the time since. next is not charged; moved says that it must be stored (through
// Charge with a cost of 0) even if nothing is charged, because it begins a refill or moved back.
func (b *TokenBucket) Decide(s BucketState, now, cost int64) (next BucketState, wait int64, moved bool) {
	switch {
	case s.Micros == 0 || now >= s.Until:
		next = BucketState{Tokens: b.Initial, At: now, Micros: b.Micros}
		moved = cost > 0 && (cost <= b.Burst || b.Overdraw) && b.Initial < b.Burst
	default:
		moved = now < s.At
		next = b.advance(s, now)
		next.Until = s.Until - max(0, s.At-now)
	}
	return next, b.Wait(next, cost), moved
}

// advance refills a state that is not absent.
func (b *TokenBucket) advance(s BucketState, now int64) BucketState {
	if s.Micros != b.Micros {
		// In float64, as Lua does it: the product may be above 2^53.
		rem := math.Floor(float64(s.Rem) * float64(b.Micros) / float64(s.Micros))
		s.Rem, s.Micros = min(int64(rem), b.Micros-1), b.Micros
	}
	if s.Tokens >= b.Burst {
		s.Tokens, s.Rem = b.Burst, 0
	}
	s.Tokens = max(s.Tokens, b.Lowest)
	elapsed := now - s.At
	s.At, s.Until = now, 0
	switch {
	case elapsed < 0:
	case elapsed >= b.TimeToFull(s):
		s.Tokens, s.Rem = b.Burst, 0
	default:
		s = b.Refill(s, elapsed)
	}
	return s
}

// Refill returns a state from Decide or Charge with what it gains in elapsed microseconds, which is less than
// its TimeToFull.
func (b *TokenBucket) Refill(s BucketState, elapsed int64) BucketState {
	rounds, part := elapsed/b.Micros, elapsed%b.Micros
	gained := part*b.Tokens + s.Rem
	s.Tokens += (rounds*b.Tokens + gained/b.Micros) * b.Grain
	s.Rem = gained % b.Micros
	return s
}

// Wait returns how long, in microseconds, cost must still wait in a state from Decide or Charge: 0 when it
// passes, Never when it is above the burst.
func (b *TokenBucket) Wait(s BucketState, cost int64) int64 {
	if cost > b.Burst {
		if !b.Overdraw {
			return Never
		}
		cost = b.Burst
	}
	if s.Tokens >= cost {
		return 0
	}
	return b.timeToGain(s, cost-s.Tokens)
}

// Charge takes cost tokens from the state that Decide returned, and returns it as it is to be
// stored: with the time from which it says no more than an absent state would. That time never
// gets earlier: else a key under two settings, as in a roll-out or by an override, would count as
// absent when the smaller burst is full, and begin afresh at the larger. It does not ask whether the
// tokens are there.
func (b *TokenBucket) Charge(s BucketState, cost int64) BucketState {
	s.Tokens -= cost
	until := s.At + b.TimeToFull(s)
	if b.Initial < b.Burst {
		until += day
	}
	s.Until = max(s.Until, until)
	return s
}

// TimeToFull returns how long, in microseconds, a state from Decide or Charge needs until it is full.
func (b *TokenBucket) TimeToFull(s BucketState) int64 {
	if s.Tokens >= b.Burst {
		return 0
	}
	return b.timeToGain(s, b.Burst-s.Tokens)
}

// timeToGain returns ⌈(n × Micros − Rem) ÷ Tokens⌉ for the n grains that hold tokens, without
// forming n × Micros, which may be above 2^53.
func (b *TokenBucket) timeToGain(s BucketState, tokens int64) int64 {
	n := ceilDiv(tokens, b.Grain)
	return n/b.Tokens*b.Micros + ceilDiv(n%b.Tokens*b.Micros-s.Rem, b.Tokens)
}

// ceilDiv returns ⌈a ÷ b⌉ for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
