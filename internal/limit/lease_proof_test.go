package limit_test

import (
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// leasedBucket returns a bucket of burst that gains tokens per interval, and is leased for hold.
func leasedBucketOf(t testing.TB, tokens, interval, burst, hold int64) limit.Settings {
	t.Helper()
	b, err := limit.NewTokenBucket(limit.Rate{Tokens: tokens, Micros: interval}, burst, burst)
	if err != nil {
		t.Fatal(err)
	}
	s, err := limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}.Leased(hold)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// leaseStart is when every world begins.
const leaseStart = vectorStart

func newLeaseWorld() leaseWorld {
	w := leaseWorld{now: leaseStart}
	w.ledger.at = leaseStart
	return w
}

// randomPlay makes random moves in a world until its horizon, and returns the excess.
func (g *leaseGame) randomPlay(rng *rand.Rand, moves int, check func(*leaseWorld, move)) int64 {
	w := newLeaseWorld()
	var room [64]move
	for range moves {
		all := g.moves(&w, room[:0])
		if len(all) == 0 {
			break
		}
		m := all[rng.IntN(len(all))]
		for kind, try := moveKind(rng.IntN(int(setBack)+1)), 0; m.kind != kind && try < 8; try++ {
			m = all[rng.IntN(len(all))]
		}
		g.play(&w, m)
		if check != nil {
			check(&w, m)
		}
	}
	return w.ledger.excess
}

// randomGame returns a game of a bucket of 40 tokens with some numbers left to chance.
func randomGame(t testing.TB, rng *rand.Rand) *leaseGame {
	rates := []int64{1, 4, 20, 40, 100, 400}
	g := &leaseGame{
		settings: leasedBucketOf(t, rates[rng.IntN(len(rates))], 1_000_000, 40, 1_000_000),
		wants:    []int64{0, 1 + rng.Int64N(40), 40}, costs: []int64{0, 1 + rng.Int64N(40)}, takes: []int64{0, 1 + rng.Int64N(20)},
		waits: []int64{1, 1 + rng.Int64N(100_000), 1 + rng.Int64N(5_000_000)}, steps: []int64{1 + rng.Int64N(2_500_000)},
		calls: 100, giveUps: true, losses: true, back: int8(rng.IntN(3)), horizon: leaseStart + 600_000_000,
		drift: [leaseNodes]int64{-1, 1},
	}
	g.store = realStore{&g.settings}
	return g
}

func TestXRandom(t *testing.T) {
	for name, f := range map[string]struct {
		s storeFaults
		n nodeFaults
	}{
		"none": {}, "lazy": {s: storeFaults{lazy: true}}, "reportsFirst": {s: storeFaults{reportsFirst: true}}, "oneSlot": {s: storeFaults{oneSlot: true}},
		"latecomers": {s: storeFaults{latecomers: true}}, "moduloTwo": {s: storeFaults{moduloTwo: true}}, "lateUsed": {s: storeFaults{lateUsed: true}},
		"mortal": {s: storeFaults{mortal: true}}, "unmerged": {s: storeFaults{slotsUnmerged: true}}, "sameEpoch": {s: storeFaults{sameEpoch: true}},
		"datedByReply": {n: nodeFaults{datedByReply: true}}, "noMargin": {n: nodeFaults{noMargin: true}}, "sentTwice": {n: nodeFaults{sentTwice: true}}, "revived": {n: nodeFaults{revived: true}},
	} {
		start := time.Now()
		worst, first := int64(0), -1
		for seed := range 20000 {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			g := randomGame(t, rng)
			g.store = &plainStore{&g.settings, f.s}
			g.faults = f.n
			if e := g.randomPlay(rng, 200, nil); e > worst {
				worst = e
				if first < 0 {
					first = seed
				}
			}
		}
		t.Log(name, worst, first, time.Since(start))
	}
}

// search plays all moves in every world that can be reached, and returns how many worlds there are, and
// the excess: of the first world in which there is some, where a search for one ends.
func (g *leaseGame) search(most int, check func(*leaseWorld)) (worlds int, excess int64) {
	seed := maphash.MakeSeed()
	first := newLeaseWorld()
	seen := map[uint64]struct{}{maphash.Comparable(seed, first): {}}
	stack := []leaseWorld{first}
	var room [64]move
	for len(stack) > 0 && len(seen) < most {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, m := range g.moves(&w, room[:0]) {
			next := w
			g.play(&next, m)
			hash := maphash.Comparable(seed, next)
			if _, ok := seen[hash]; ok {
				continue
			}
			seen[hash] = struct{}{}
			if check != nil {
				check(&next)
			}
			if next.ledger.excess > 0 {
				return len(seen), next.ledger.excess
			}
			stack = append(stack, next)
		}
	}
	return len(seen), 0
}

func TestXSearch(t *testing.T) {
	for name, f := range map[string]struct {
		s storeFaults
		n nodeFaults
	}{
		"none": {}, "lazy": {s: storeFaults{lazy: true}}, "reportsFirst": {s: storeFaults{reportsFirst: true}}, "oneSlot": {s: storeFaults{oneSlot: true}},
		"latecomers": {s: storeFaults{latecomers: true}}, "moduloTwo": {s: storeFaults{moduloTwo: true}}, "lateUsed": {s: storeFaults{lateUsed: true}},
		"mortal": {s: storeFaults{mortal: true}}, "unmerged": {s: storeFaults{slotsUnmerged: true}}, "sameEpoch": {s: storeFaults{sameEpoch: true}},
		"datedByReply": {n: nodeFaults{datedByReply: true}}, "noMargin": {n: nodeFaults{noMargin: true}}, "sentTwice": {n: nodeFaults{sentTwice: true}}, "revived": {n: nodeFaults{revived: true}},
	} {
		if name != "none" {
			continue
		}
		for _, rate := range []int64{1, 8} {
			for _, calls := range []int8{3, 4} {
				for _, give := range []bool{false, true} {
					for _, ticks := range []int64{2, 3, 4} {
						start := time.Now()
						const hold = 1_200_000
						g := &leaseGame{
							settings: leasedBucketOf(t, rate, hold, 4, hold), wants: []int64{0, 4}, costs: []int64{0, 4}, takes: []int64{0},
							calls: calls, steps: []int64{hold / 2}, horizon: leaseStart + 3*hold, giveUps: give,
							tick: hold / ticks,
						}
						g.store = &plainStore{&g.settings, f.s}
						g.faults = f.n
						n, e := g.search(1_000_000, nil)
						t.Log(name, rate, calls, give, ticks, n, e, time.Since(start))
					}
				}
			}
		}
	}
}
