package limit_test

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// traces is how many random traces a property is tried on.
func traces(long int) int {
	if testing.Short() {
		return long / 10
	}
	return long
}

// TestTokenBucketIsExact compares decisions, levels, waits and what is stored with the reference,
// over random settings that change on the way, debts, pauses of up to years, and clock steps.
func TestTokenBucketIsExact(t *testing.T) {
	for seed := range traces(2000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		b, now, wait := randomBucket(rng), int64(vectorStart), int64(0)
		var s bucket
		var r reference
		for step := range 100 {
			switch rng.IntN(8) {
			case 0, 1:
				now += spread(rng, 1, 1e7)
			case 2:
				now += spread(rng, 1, 1e14)
			case 3, 4:
				now += wait
			case 5:
				now += max(0, wait-1)
			case 6:
				now += rng.Int64N(20_001) - 10_000
			}
			now = min(now, 5_000_000_000_000_000)
			if rng.IntN(25) == 0 {
				b = randomBucket(rng)
			}
			if rng.IntN(25) == 0 {
				s.state = limit.BucketState{Tokens: -spread(rng, 1, 1e12), Rem: rng.Int64N(b.Micros), At: now, Until: now + spread(rng, 1, 1e15), Micros: b.Micros}
				r.plant(s.state)
			}
			cost := randomCost(rng, &b)
			before := s.state
			got, want := s.ask(&b, now, cost), r.ask(&b, now, cost)
			if got != want {
				t.Fatalf("seed %d, step %d: %+v asked for %d at %d, state %+v\ngot  %+v\nwant %+v", seed, step, b, cost, now, before, got, want)
			}
			if st := s.state; st.Micros != 0 && (ratOf(st.Tokens).Cmp(r.level) != 0 || big.NewRat(st.Rem, st.Micros).Cmp(r.part) != 0 || st.At != r.at || st.Until != r.until) {
				t.Fatalf("seed %d, step %d: %+v: stored %+v, want %+v", seed, step, b, st, r)
			}
			wait = got.RetryAfter
		}
	}
}

// TestRetryAfterIsTight: waiting exactly as told passes, a microsecond less does not.
func TestRetryAfterIsTight(t *testing.T) {
	denials := 0
	for seed := range traces(3000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		b, now := randomBucket(rng), int64(vectorStart)
		var s bucket
		for range 50 {
			now += spread(rng, 1, 1e9) - 1
			cost := randomCost(rng, &b)
			d := s.ask(&b, now, cost)
			if d.Allowed || d.Never {
				continue
			}
			denials++
			if _, wait, _ := b.Decide(s.state, now+d.RetryAfter, cost); wait != 0 {
				t.Fatalf("%+v, cost %d: after the wait of %dµs another %dµs", b, cost, d.RetryAfter, wait)
			}
			if _, wait, _ := b.Decide(s.state, now+d.RetryAfter-1, cost); wait != 1 {
				t.Fatalf("%+v, cost %d: 1µs before the end of the wait of %dµs it is %dµs", b, cost, d.RetryAfter, wait)
			}
		}
	}
	if denials < 100 {
		t.Errorf("only %d denials: the trace tests nothing", denials)
	}
}

// TestResetAfterIsTight: after exactly that long the bucket is full, a microsecond earlier not.
func TestResetAfterIsTight(t *testing.T) {
	checked := 0
	for seed := range traces(3000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		b, now := randomBucket(rng), int64(vectorStart)
		var s bucket
		for range 50 {
			now += spread(rng, 1, 1e9) - 1
			d := s.ask(&b, now, randomCost(rng, &b))
			if d.ResetAfter == 0 || now >= s.state.Until {
				continue
			}
			checked++
			full, _, _ := b.Decide(s.state, now+d.ResetAfter, 0)
			almost, _, _ := b.Decide(s.state, now+d.ResetAfter-1, 0)
			if full.Tokens != b.Burst || almost.Tokens >= b.Burst {
				t.Fatalf("%+v: full in %dµs, but then it holds %d, and 1µs earlier %d", b, d.ResetAfter, full.Tokens, almost.Tokens)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d states were not full: the trace tests nothing", checked)
	}
}

// TestAdmittedIsBounded: over any window W at most burst + rate × W passes; where tokens come in
// grains, that is a grain for every interval begun.
func TestAdmittedIsBounded(t *testing.T) {
	type grant struct{ at, cost int64 }
	for seed := range traces(1000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		b, now, wait := randomBucket(rng), int64(vectorStart), int64(0)
		var s bucket
		var grants []grant
		for range 60 {
			switch rng.IntN(4) {
			case 0:
				now += spread(rng, 1, 1e10) - 1
			case 1:
				now += wait
			}
			cost := randomCost(rng, &b)
			d := s.ask(&b, now, cost)
			if d.Allowed && cost > 0 {
				grants = append(grants, grant{now, cost})
			}
			wait = d.RetryAfter
		}
		for i := range grants {
			sum := new(big.Int)
			for _, g := range grants[i:] {
				sum.Add(sum, big.NewInt(g.cost))
				window := ratOf(g.at - grants[i].at)
				bound := window.Mul(window, perMicro(&b))
				if b.Grain > 1 {
					bound = ratOf(floorOf(bound) + 1)
				}
				bound.Mul(bound, ratOf(b.Grain)).Add(bound, ratOf(b.Burst))
				if new(big.Rat).SetInt(sum).Cmp(bound) > 0 {
					t.Fatalf("seed %d: %+v admitted %d in %dµs, more than %s", seed, b, sum, g.at-grants[i].at, bound.FloatString(3))
				}
			}
		}
	}
}

// TestNothingIsLost: a drained bucket that is asked again and again, with and without success,
// gives and keeps exactly what the time it took has refilled.
func TestNothingIsLost(t *testing.T) {
	for seed := range traces(3000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		b := randomBucket(rng)
		b.Initial = b.Burst
		var asked, left bucket
		asked.ask(&b, vectorStart, b.Burst)
		left.ask(&b, vectorStart, b.Burst)
		span := 1 + rng.Int64N(b.TimeToFull(left.state))
		var times []int64
		for range 30 {
			times = append(times, vectorStart+rng.Int64N(span))
		}
		slices.Sort(times)
		taken := int64(0)
		for _, now := range times {
			cost := randomCost(rng, &b)
			if rng.IntN(2) == 0 {
				cost = 1
			}
			if asked.ask(&b, now, cost).Allowed {
				taken += cost
			}
		}
		now := vectorStart + span - 1 // the last moment at which neither is full
		end, _, _ := b.Decide(asked.state, now, 0)
		want, _, _ := b.Decide(left.state, now, 0)
		if end.Tokens+taken != want.Tokens || end.Rem != want.Rem {
			t.Fatalf("seed %d: %+v: %d taken, %d and %d/%d left; left alone it has %d and %d/%d", seed, b,
				taken, end.Tokens, end.Rem, b.Micros, want.Tokens, want.Rem, b.Micros)
		}
	}
}

// TestWhatMustBeStored: without a charge a state is stored only when it begins a refill, or moved
// back with the clock.
func TestWhatMustBeStored(t *testing.T) {
	bucket := func(initial int64) limit.TokenBucket {
		b, err := limit.NewTokenBucket(limit.Rate{Tokens: 1, Micros: 1_000_000}, 10, initial)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	full, empty, absent := bucket(10), bucket(0), limit.BucketState{}
	stored := limit.BucketState{Tokens: 1, At: vectorStart, Until: vectorStart + 9_000_000, Micros: 1_000_000}
	tests := []struct {
		name   string
		bucket limit.TokenBucket
		state  limit.BucketState
		now    int64
		cost   int64
		want   bool
	}{
		{"begins full", full, absent, vectorStart, 1, false},
		{"begins a refill", empty, absent, vectorStart, 1, true},
		{"begins a refill with a cost of the whole burst", empty, absent, vectorStart, 10, true},
		{"a peek begins nothing", empty, absent, vectorStart, 0, false},
		{"nor does what never passes", empty, absent, vectorStart, 11, false},
		{"begins again", empty, stored, stored.Until, 1, true},
		{"the same time", full, stored, vectorStart, 1, false},
		{"later", full, stored, vectorStart + 1, 1, false},
		{"earlier", full, stored, vectorStart - 1, 1, true},
		{"a peek earlier", full, stored, vectorStart - 1, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, moved := tt.bucket.Decide(tt.state, tt.now, tt.cost); moved != tt.want {
				t.Errorf("moved is %t", moved)
			}
		})
	}
}
