package local_test

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// TestAnswersThatEndADenial: something was given back elsewhere.
func TestAnswersThatEndADenial(t *testing.T) {
	tests := []struct {
		name string
		left int64 // in the store before the answer
		cost int64 // that is asked
		ends bool
	}{
		{"the same cost passes", 10, 5, true},
		{"more passes", 10, 6, true},
		{"less passes, and leaves room", 10, 1, true},
		{"less passes, which took what was room", 6, 4, true},
		{"less passes", 2, 2, false},
		{"less passes, some is left", 4, 2, false},
		{"a peek sees room", 5, 0, true},
		{"a peek sees no room", 4, 0, false},
		{"a peek sees nothing", 0, 0, false},
		{"less is denied", 0, 4, false}, // and remembered in its place
		{"more is denied", 0, 6, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				w.gave = true
				w.ask(0, 0, 5)
				w.state = w.limit.Settings.Seed(w.micros(time.Millisecond), tt.left, 600_000)
				w.ask(time.Millisecond, time.Millisecond, tt.cost)
				w.tier.Join(w.base, w.charge(1), 0) // so that it does not matter how exact the wait is
				w.want(2*time.Millisecond, 5, !tt.ends)
			})
		})
	}
}

// TestUnchargedAnswerIsKnowledge: another limit of the policy has denied the request.
func TestUnchargedAnswerIsKnowledge(t *testing.T) {
	for _, s := range append(remembering(t), bucketOf(even(t, 1, 3_600_000_000, 10))) {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			w := newWorldOf(t, s)
			w.answer(0, 7)
			v := w.answer(0, 0)
			v.Allowed, v.RetryAfter = true, 0
			w.tier.Observe(w.base, w.charge(2), &v)
			if known, ok := w.tier.Known(w.base, w.charge(1)); known.Left != 3 || !known.AsOf.Equal(w.base) || !ok {
				t.Errorf("%+v is known, want 3 left", known)
			}
			w.want(time.Millisecond, 4, s.Algorithm == limit.TokenBucketAlgorithm)
			w.want(time.Millisecond, 3, false)
		})
	}
}

func TestShadowsAnswersAreAnswers(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.limit.Shadow = true
		w.ask(0, 0, 4)
		w.limit.Shadow = false
		w.want(time.Millisecond, 4, true)
	})
}

func TestDebtIsRemembered(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		v := w.answer(0, 0)
		v.Allowed, v.Remaining, v.RetryAfter = false, -3, v.ResetAfter/2 // a peek is denied only in debt
		w.tier.Observe(w.base, w.charge(0), &v)
		w.tier.Join(w.base, w.charge(1), 0)
		w.want(time.Millisecond, 1, true)
		w.want(time.Millisecond, 0, false)
		w.ask(2*time.Millisecond, 2*time.Millisecond, 0) // it was paid
		w.want(3*time.Millisecond, 1, false)
	})
}

func TestDenialNeedsItsSettings(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.ask(0, 0, 4)
		old := w.limit
		changed := *old
		switch changed.Settings.Window.Limit {
		case 0:
			changed.Settings.Bucket.Burst = 20
		default:
			changed.Settings.Window.Limit = 20
		}
		w.limit = &changed
		w.want(time.Millisecond, 4, false)
		w.ask(2*time.Millisecond, 2*time.Millisecond, 20) // denied
		w.want(3*time.Millisecond, 20, true)
		w.limit = old
		w.want(3*time.Millisecond, 4, false) // what was known under the old ones is gone
		w.ask(4*time.Millisecond, 4*time.Millisecond, 4)
		again := *old
		w.limit = &again // equal settings of a new generation of rules
		w.want(5*time.Millisecond, 4, true)
	})
}

func TestOwnCreditEndsADenial(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.gave = true
		late := w.answer(0, 4)
		w.ask(0, 0, 4)
		w.want(time.Millisecond, 4, true)
		w.tier.BeginCredit(hashOf(key))
		w.want(2*time.Millisecond, 4, false)
		w.tier.Observe(w.base.Add(2*time.Millisecond), w.charge(4), &late)
		w.want(3*time.Millisecond, 4, false)
		w.tier.EndCredit(w.base.Add(5*time.Millisecond), hashOf(key))
		w.want(5*time.Millisecond, 4, false)
		w.tier.Observe(w.base.Add(4*time.Millisecond), w.charge(4), &late) // asked before the credit
		w.want(6*time.Millisecond, 4, false)
		w.ask(7*time.Millisecond, 7*time.Millisecond, 4)
		w.want(8*time.Millisecond, 4, true)
	})
}

func TestOlderDenialIsDropped(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		late := w.answer(0, 4)
		w.state = limit.State{}
		w.ask(500*time.Millisecond, 500*time.Millisecond, 1)
		w.tier.Observe(w.base, w.charge(4), &late)
		w.want(501*time.Millisecond, 4, false)
	})
}
