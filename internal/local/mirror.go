package local

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/tidegate/tidegate/internal/limit"
)

// mirror follows a token_bucket or a leaky_bucket from an answer on. Guarded by the mu of its entry.
type mirror struct {
	gained rate.Limiter // the most grains that the bucket can have gained since the answer was asked for
	latest instant      // the latest time that was asked about: it must not go backwards
	answer uint32       // the one that it follows
}

// driftFactor makes the mirror refill a little faster than the limit, and a remembered denial end a
// little earlier, for clocks that run apart.
const driftFactor = 1.001

// mirrored reports whether the settings are of an algorithm that a mirror follows.
func mirrored(s *limit.Settings) bool {
	return s.Algorithm == limit.TokenBucketAlgorithm || s.Algorithm == limit.LeakyBucketAlgorithm
}

// reflect lets the mirror follow what the newest answer says of the bucket. Its limiter begins without a grain, the
// time before asOf that it takes to gain what the answer found gained of one, and gains what is missing at
// most, a little faster than the bucket. What is out on lease may all come back; meanwhile the refill may
// rest, so that nothing is known of the part, and the next grain counts as gained. The caller holds the
// shard's mu.
func (e *entry) reflect(start time.Time) {
	b := &e.settings.Bucket
	missing, part := e.missing(), b.Micros
	if e.out() == 0 {
		part = e.part()
	}
	ahead := time.Duration(float64(part+b.Tokens-1) / float64(b.Tokens) / driftFactor * 1000)
	if e.mirror == nil {
		e.mirror = &mirror{latest: never}
	}
	m, began := e.mirror, start.Add(e.asOf-ahead)
	m.answer, m.gained = e.answer, rate.Limiter{} // which holds nothing, and gains nothing
	m.gained.SetBurstAt(began, int(missing))
	m.gained.SetLimitAt(began, rate.Limit(perMicro(b)*1e6*driftFactor))
}

// missing returns how many grains the newest answer found missing, if all came back that is out.
func (e *entry) missing() int64 {
	b := &e.settings.Bucket
	return (max(0, b.Burst-e.left-e.out()) + b.Grain - 1) / b.Grain
}

// part returns how much of the next grain the newest answer found gained, in 1/Micros, by the time to full,
// which is rounded up to a µs: at least so much, and less than Tokens more. Nothing is out on lease. The
// products may overflow; their difference is small, and exact all the same.
func (e *entry) part() int64 {
	b, missing := &e.settings.Bucket, e.missing()
	if missing == 0 {
		return 0
	}
	return missing*b.Micros - e.reset.Microseconds()*b.Tokens
}

func perMicro(b *limit.TokenBucket) float64 { return float64(b.Tokens) / float64(b.Micros) }

// atLeast returns what the mirror holds at any time since the newest answer. A cost that this covers needs no
// mirror to be let through, so that the keys of which much is left, which are most, have none. The caller holds
// the shard's mu.
func (e *entry) atLeast() int64 { return e.left + e.out() }

// most returns the most tokens that the bucket can hold at now: a millionth of a grain more for floating
// point, and a µs of the rate for times cut to a µs. The caller holds the shard's mu.
func (e *entry) most(start time.Time, now instant) int64 {
	b := &e.settings.Bucket
	if e.mirror == nil || e.mirror.answer != e.answer {
		e.reflect(start)
	}
	e.mirror.latest = max(e.mirror.latest, now)
	grains := e.mirror.gained.TokensAt(start.Add(e.mirror.latest)) + 1e-6 + perMicro(b)
	return e.atLeast() + int64(grains)*b.Grain
}

// bucketAfter decides cost, which is not above the burst, in the bucket as it is so long after the newest
// answer, if nobody took anything since. Every µs that passes makes each wait shorter by one, so none is
// reckoned anew. The caller holds the shard's mu.
func (e *entry) bucketAfter(elapsed time.Duration, cost int64) (wait, left, reset int64) {
	b, passed := &e.settings.Bucket, max(0, elapsed).Microseconds()
	state, full := limit.BucketState{Tokens: e.left, Micros: b.Micros}, int64(0)
	if e.out() == 0 {
		state.Rem, full = max(0, e.part()), e.reset.Microseconds()
	} else {
		full = b.TimeToFull(state)
	}
	if passed >= full {
		return 0, b.Burst, 0
	}
	return max(0, b.Wait(state, cost)-passed), b.Refill(state, passed).Tokens, full - passed
}
