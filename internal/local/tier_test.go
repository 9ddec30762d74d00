package local_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

func TestDenyIsDatedBeforeTheCall(t *testing.T) {
	w := newWorld(t, even(t, 10, 1_000_000, 1))
	// The bucket decides at once; its answers are on their way for 40ms.
	w.ask(0, 0, 1)
	w.want(99*time.Millisecond, 1, true)
	w.want(100*time.Millisecond, 1, false)
}

func TestDenyKnowsTheFraction(t *testing.T) {
	// The whole part is 0 and the burst 1: without the fraction either every or no request of
	// this limit would be denied.
	for _, gone := range []time.Duration{0, time.Microsecond, 250 * time.Millisecond, 990 * time.Millisecond} {
		t.Run(gone.String(), func(t *testing.T) {
			w := newWorld(t, even(t, 1, 1_000_000, 1))
			w.answer(0, 1)
			w.ask(gone, gone, 1)
			w.want(gone+(time.Second-gone)*99/100, 1, true)
			w.want(time.Second, 1, false)
		})
	}
}

func TestDenyAllowsForDrift(t *testing.T) {
	w := newWorld(t, even(t, 1, 1, 1_000_000))
	w.ask(0, 0, 1_000_000)
	// Redis's clock runs 0.05 % fast: at 900ms here it is 900.45ms there.
	w.want(900*time.Millisecond, 900_450, false)
	w.want(900*time.Millisecond, 902_000, true)
}

func TestDenyAllowsForTimesCutToMicroseconds(t *testing.T) {
	w := newWorld(t, even(t, 1, 1, 100))
	w.base = w.base.Truncate(time.Microsecond)
	w.ask(900*time.Nanosecond, 900*time.Nanosecond, 100)
	// 9.1µs later, but 10µs by a clock of whole µs.
	w.want(10*time.Microsecond, 10, false)
	w.want(10*time.Microsecond, 12, true)
}

func TestDenyAllowsForFloatingPoint(t *testing.T) {
	// A token in decades, nearly due: one float64 between 0 and 1 is hours or µs apart from the next.
	for years := range int64(90) {
		for i := range int64(20) {
			micros := (years+1)*365*86_400_000_000 + i*1_234_567_891
			w := newWorld(t, even(t, 1, micros, 1))
			w.base = time.Unix(1_700_000_000, 0)
			w.answer(0, 1)
			due := time.Duration(micros) * time.Microsecond
			w.base = w.base.Add(due - time.Second)
			w.ask(time.Second-1001, time.Second-1001, 1)
			w.want(time.Second, 1, false)
		}
	}
}

func TestDenyAtTheExactInterval(t *testing.T) {
	for _, b := range []limit.TokenBucket{even(t, 10, 1_000_000, 1), even(t, 1, 3_000_000, 1), even(t, 3, 1_000_000, 1), even(t, 7, 9_000_000, 1)} {
		w := newWorld(t, b)
		w.tier = newTier(t, local.TierConfig{Recheck: time.Hour})
		interval := time.Duration((b.Micros+b.Tokens-1)/b.Tokens) * time.Microsecond
		for i := range time.Duration(1000) {
			w.want(i*interval, 1, false)
			w.ask(i*interval, i*interval, 1)
			w.want(i*interval+interval*99/100, 1, true)
		}
	}
}

func TestDenyInDebt(t *testing.T) {
	w := newWorld(t, even(t, 10, 1_000_000, 10))
	// A settlement left the bucket 5 below zero.
	w.state.Bucket = w.limit.Settings.Bucket.Charge(limit.BucketState{Tokens: 10, At: w.micros(0), Micros: w.limit.Settings.Bucket.Micros}, 15)
	w.ask(0, 0, 1)
	v, denied := deny(w.tier, w.base, w.charge(1))
	if !denied || v.Remaining != -5 || v.RetryAfter != 600*time.Millisecond || v.ResetAfter != 1500*time.Millisecond {
		t.Errorf("got %+v, %v; want -5 left, retry after 600ms, reset after 1.5s", v, denied)
	}
	w.want(0, 0, false) // a peek is the store's to answer
	w.want(590*time.Millisecond, 1, true)
	w.want(600*time.Millisecond, 1, false)
	w.want(600*time.Millisecond, 2, true)
}

func TestDenyNeverGoesBackInTime(t *testing.T) {
	w := newWorld(t, even(t, 10, 1_000_000, 10))
	w.ask(0, 0, 10)
	w.want(100*time.Millisecond, 1, false)
	// A request that arrived earlier, but is looked at later.
	w.want(99*time.Millisecond, 1, false)
	w.want(99*time.Millisecond, 2, true)
	// An answer does not turn time back either.
	w.ask(98*time.Millisecond, 98*time.Millisecond, 10)
	w.want(99*time.Millisecond, 1, false)
}

func TestGrantRenewsLevelAndAge(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 10))
	w.ask(0, 0, 1)
	w.want(0, 10, true)
	w.ask(10*time.Millisecond, 10*time.Millisecond, 9)
	w.want(20*time.Millisecond, 1, true)   // the grant said that nothing is left
	w.want(1010*time.Millisecond, 1, true) // and is a second old
	w.want(1011*time.Millisecond, 1, false)
}

func TestGrantAfterACreditRenewsTheLevel(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 10))
	w.ask(0, 0, 10)
	w.want(time.Millisecond, 1, true)
	w.give(2*time.Millisecond, 10)
	w.want(3*time.Millisecond, 1, true) // false, but younger than a second
	w.ask(900*time.Millisecond, 900*time.Millisecond, 1)
	w.want(950*time.Millisecond, 5, false)
	w.want(1500*time.Millisecond, 5, false)
}

func TestRecheck(t *testing.T) {
	for _, recheck := range []time.Duration{0, 250 * time.Millisecond, 3 * time.Second} {
		t.Run(recheck.String(), func(t *testing.T) {
			w := newWorld(t, even(t, 1, 3_600_000_000, 1))
			w.tier = newTier(t, local.TierConfig{Recheck: recheck})
			if recheck == 0 {
				recheck = time.Second
			}
			// The age counts from the time before the call, not from the reply 40ms later.
			w.ask(0, 40*time.Millisecond, 1)
			w.want(recheck, 1, true)
			w.want(recheck+1, 1, false)
			w.want(recheck+2, 1, false) // nobody is denied while one asks again
			w.ask(recheck, recheck, 1)
			w.want(recheck+3, 1, true)
		})
	}
}

func TestDenyDiscreteRefill(t *testing.T) {
	w := newWorld(t, discrete(t, 10, time.Second, 25))
	w.ask(0, 0, 25)
	w.ask(950*time.Millisecond, 950*time.Millisecond, 1)
	w.want(960*time.Millisecond, 1, true)
	w.want(999*time.Millisecond, 1, true)
	w.want(1000*time.Millisecond, 1, false)
	w.want(1000*time.Millisecond, 10, false)
	w.want(1000*time.Millisecond, 11, true)
	w.ask(1200*time.Millisecond, 1200*time.Millisecond, 3)
	w.want(1300*time.Millisecond, 7, false)
	w.want(1300*time.Millisecond, 8, true)
	v, _ := deny(w.tier, w.base.Add(1300*time.Millisecond), w.charge(18))
	if v.RetryAfter != 1700*time.Millisecond || v.ResetAfter != 1700*time.Millisecond || v.Remaining != 7 {
		t.Errorf("got %+v, want 7 left, retry and reset after 1.7s", v)
	}
}

func TestNewestAnswerWins(t *testing.T) {
	w := newWorld(t, even(t, 10, 1_000_000, 10))
	older := w.answer(0, 9)
	// Nothing is left in what was asked earlier; much is in what was asked later, and came first.
	w.state = limit.State{}
	w.ask(500*time.Millisecond, 500*time.Millisecond, 1)
	w.tier.Observe(w.base, &limit.Charge{Key: key, Hash: hashOf(key)}, &older)
	w.want(501*time.Millisecond, 9, false)
	w.want(501*time.Millisecond, 10, true)
	w.ask(510*time.Millisecond, 510*time.Millisecond, 9)
	w.want(520*time.Millisecond, 1, true)
}

func TestSettingsMustBeTheAnswers(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 1))
	w.ask(0, 0, 1)
	w.want(time.Millisecond, 1, true)
	old := w.limit
	for _, b := range []limit.TokenBucket{
		even(t, 1, 3_600_000_000, 2),                 // raised
		even(t, 2, 3_600_000_000, 1),                 // faster
		discrete(t, 1, time.Hour, 2),                 // another refill
		{Tokens: 1, Micros: 3_600_000_000, Grain: 1}, // lowered
	} {
		w.limit = &limit.Limit{Name: "l", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}}
		w.want(time.Millisecond, 1, false)
	}
	// A late answer under the old settings says nothing of the new ones.
	w.ask(2*time.Millisecond, 2*time.Millisecond, 1)
	w.limit = old
	w.want(3*time.Millisecond, 1, false)
	w.ask(3*time.Millisecond, 3*time.Millisecond, 1)
	w.want(4*time.Millisecond, 1, true)
	// Equal settings of a new generation of rules are the same settings.
	again := *old
	w.limit = &again
	w.want(4*time.Millisecond, 1, true)
}

func TestOwnCredit(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 10))
	late := w.answer(0, 10)
	w.ask(0, 0, 1)
	w.want(time.Millisecond, 1, true)
	w.tier.BeginCredit(hashOf(key))
	w.want(2*time.Millisecond, 1, false) // perhaps it is there already
	w.tier.Observe(w.base.Add(2*time.Millisecond), &limit.Charge{Key: key, Hash: hashOf(key)}, &late)
	w.want(3*time.Millisecond, 1, false)
	w.give(4*time.Millisecond, 10)
	w.tier.EndCredit(w.base.Add(5*time.Millisecond), hashOf(key))
	w.want(5*time.Millisecond, 1, false)
	w.tier.Observe(w.base.Add(4*time.Millisecond), &limit.Charge{Key: key, Hash: hashOf(key)}, &late) // asked before the credit, answered after it
	w.want(7*time.Millisecond, 1, false)
	w.ask(7*time.Millisecond, 7*time.Millisecond, 10)
	w.want(8*time.Millisecond, 1, true)
}

func TestTwoOwnCredits(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 10))
	late := w.answer(0, 10)
	w.tier.BeginCredit(hashOf(key))
	w.tier.BeginCredit(hashOf(key))
	w.tier.EndCredit(w.base.Add(3*time.Millisecond), hashOf(key))
	w.ask(4*time.Millisecond, 4*time.Millisecond, 1)
	w.want(5*time.Millisecond, 1, false) // the other one is under way
	w.tier.EndCredit(w.base.Add(7*time.Millisecond), hashOf(key))
	w.tier.EndCredit(w.base.Add(6*time.Millisecond), hashOf(key)) // one too many, and told late
	w.tier.Observe(w.base.Add(6*time.Millisecond), &limit.Charge{Key: key, Hash: hashOf(key)}, &late)
	w.want(8*time.Millisecond, 1, false)
	w.ask(8*time.Millisecond, 8*time.Millisecond, 1)
	w.want(9*time.Millisecond, 1, true)
	w.tier.BeginCredit(hashOf(key))
	w.want(9*time.Millisecond, 1, false)
}

func TestOwnCreditOfAKeyThatIsDropped(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 10))
	w.tier = newTier(t, local.TierConfig{MaxKeys: 1})
	late := w.answer(0, 10)
	w.tier.BeginCredit(hashOf(key))
	for i := range 1000 {
		w.tier.Observe(w.base, &limit.Charge{Hash: hashOf(fmt.Sprint(i))}, &late)
	}
	w.tier.EndCredit(w.base.Add(3*time.Millisecond), hashOf(key))
	w.tier.Observe(w.base.Add(2*time.Millisecond), &limit.Charge{Key: key, Hash: hashOf(key)}, &late)
	w.want(4*time.Millisecond, 1, false)
}

func TestDenyLeavesAlone(t *testing.T) {
	w := newWorld(t, even(t, 1, 3_600_000_000, 10))
	w.want(0, 1, false) // nothing is known
	w.ask(0, 0, 10)
	w.want(0, 0, false)  // a peek
	w.want(0, 11, false) // what can never pass
	w.want(0, 10, true)
}

func TestTierIsBounded(t *testing.T) {
	tier := newTier(t, local.TierConfig{MaxKeys: 1000})
	w := newWorld(t, even(t, 1, 3_600_000_000, 1))
	v := w.answer(0, 1)
	for i := range 50_000 {
		tier.Observe(w.base, &limit.Charge{Hash: hashOf(fmt.Sprint(i))}, &v)
		tier.BeginCredit(hashOf(fmt.Sprint(-i)))
	}
	if got := tier.Len(); got < 900 || got > 1000 {
		t.Errorf("%d keys are known, want at most 1000", got)
	}
}

// TestDenyWhereRequestsWait: what waits in a leaky bucket is below its bottom.
func TestDenyWhereRequestsWait(t *testing.T) {
	leaky := bucketOf(even(t, 10, 1_000_000, 2))
	leaky.Algorithm = limit.LeakyBucketAlgorithm
	w := newWorldOf(t, leaky)
	w.state = leaky.Seed(w.micros(0), -3, 0) // 3 wait, as max_wait_ms lets them
	v := w.answer(0, 0)
	v = limit.NewVerdict(w.charge(1), time.Second, v.RetryAfter.Microseconds(), v.Remaining, v.ResetAfter.Microseconds())
	if !v.Allowed || v.Hold == 0 {
		t.Fatalf("%+v, want one that waits", v)
	}
	w.tier.Observe(w.base, w.charge(1), &v)
	if v, _ := deny(w.tier, w.base, w.charge(2)); v.RetryAfter != 500*time.Millisecond || v.Remaining != -3 || v.Hold != 0 {
		t.Errorf("%+v, want a retry after 500ms", v)
	}
	w.want(390*time.Millisecond, 1, true)
	w.want(400*time.Millisecond, 1, false)
	w.want(400*time.Millisecond, 2, true)
}

// TestDenyWhileTokensAreOut: of a bucket with tokens out on lease the next part of a token is not known, nor is
// when it is full what the store says, which counts what is out.
func TestDenyWhileTokensAreOut(t *testing.T) {
	w := newWorld(t, even(t, 1, 1_000_000, 100))
	v := limit.NewVerdict(w.charge(10), 0, 2_000_000, 3, 92_000_000)
	v.Out = 5
	w.tier.Observe(w.base, w.charge(10), &v)
	w.want(0, 8, false) // all that is out may come back
	got, denied := deny(w.tier, w.base, w.charge(10))
	if !denied || got.Remaining != 3 || got.RetryAfter != 7*time.Second || got.ResetAfter != 97*time.Second {
		t.Errorf("got %+v, %v; want 3 left, retry after 7s, reset after 97s", got, denied)
	}
}
