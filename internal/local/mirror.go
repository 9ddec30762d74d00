package local

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidegate/tidegate/internal/limit"
)

// mirror follows a token_bucket or a leaky_bucket from the newest answer on. The zero mirror follows
// nothing.
type mirror struct {
	gained *rate.Limiter // the most grains that the bucket can have gained since asOf
	slack  float64       // grains that rounding may hide
	rem    int64         // what the answer found gained of the next grain, in 1/Micros; or a little less
	latest time.Time     // the latest time that was asked about: it must not go backwards
}

// driftFactor makes the mirror refill a little faster than the limit, and a remembered denial end a
// little earlier, for clocks that run apart.
const driftFactor = 1.001

// mirrored reports whether the settings are of an algorithm that a mirror follows.
func mirrored(s *limit.Settings) bool {
	return s.Algorithm == limit.TokenBucketAlgorithm || s.Algorithm == limit.LeakyBucketAlgorithm
}

// reflect takes over what the newest answer says of the bucket: the tokens left, and through the time
// to full, which is rounded up to a µs, the part of the next grain that is gained already. The
// limiter begins without a grain, that part's time before asOf, and gains what is missing at
// most, a little faster than the bucket. The slack is a millionth of a grain for floating point,
// and a µs of the rate for times cut to a µs. What is out on lease may all come back; meanwhile the refill
// may rest, so that the time to full says nothing of the part, and the next grain counts as gained. The
// caller holds the shard's mu.
func (e *entry) reflect() {
	b := &e.settings.Bucket
	missing := (max(0, b.Burst-e.left-e.out) + b.Grain - 1) / b.Grain
	// At least rem of the grain is gained, in 1/Micros, and less than rem + Tokens. The products
	// may overflow; their difference is small, and exact all the same.
	rem := int64(0)
	switch {
	case e.out > 0:
		rem = b.Micros
	case missing > 0:
		rem = missing*b.Micros - e.reset.Microseconds()*b.Tokens
	}
	ahead := time.Duration(float64(rem+b.Tokens-1) / float64(b.Tokens) / driftFactor * 1000)
	perUs := float64(b.Tokens) / float64(b.Micros)
	m := &e.mirror
	m.gained = rate.NewLimiter(rate.Limit(perUs*1e6*driftFactor), int(missing))
	m.gained.ReserveN(e.asOf.Add(-ahead), int(missing))
	m.slack = 1e-6 + perUs
	m.rem = max(0, rem)
	if e.out > 0 {
		m.rem = 0
	}
}

// most returns the most tokens that the bucket can hold at now. The caller holds the shard's mu.
func (e *entry) most(now time.Time) int64 {
	grains := e.mirror.gained.TokensAt(e.mirror.advance(now)) + e.mirror.slack
	return e.left + e.out + int64(grains)*e.settings.Bucket.Grain
}

// advance returns now, or the latest time asked about if that is later.
func (m *mirror) advance(now time.Time) time.Time {
	if m.latest.Before(now) {
		m.latest = now
	}
	return m.latest
}

// bucketAfter decides cost in the bucket as it is so long after the newest answer, if nobody took
// anything since. The caller holds the shard's mu.
func (e *entry) bucketAfter(elapsed time.Duration, cost int64) (wait, left, reset int64) {
	b := &e.settings.Bucket
	state := limit.BucketState{Tokens: e.left, Rem: e.mirror.rem, Until: math.MaxInt64, Micros: b.Micros}
	next, wait, _ := b.Decide(state, max(0, elapsed).Microseconds(), cost)
	return wait, next.Tokens, b.TimeToFull(next)
}
