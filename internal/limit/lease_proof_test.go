package limit_test

import (
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// leasedBucketOf returns a bucket of burst that gains tokens per interval, and is leased for hold.
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

func newRand(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }

// seeds is how many random games a test plays.
func seeds() int {
	if testing.Short() {
		return 4000
	}
	return 100_000
}

// TestLeasesKeepTheBound plays random games by all rules: nodes that call, hand out, wait, give up and lose calls
// as they like, with clocks of their own that run apart, while the store's clock steps back. In no window of
// time more is handed out than the burst and what that time refills.
func TestLeasesKeepTheBound(t *testing.T) {
	for seed := range seeds() {
		rng := newRand(seed)
		g := randomGame(t, rng)
		if excess := g.randomPlay(rng, 200, nil); excess > 0 {
			t.Fatalf("seed %d: %d tokens too many", seed, excess)
		}
	}
}

// TestPlainLeasesAgree: the store that is written down plainly, of which the tests below break one rule after
// the other, does what the package does.
func TestPlainLeasesAgree(t *testing.T) {
	for seed := range seeds() / 2 {
		rng := newRand(seed)
		g := randomGame(t, rng)
		plain := *g
		plain.store = &plainStore{settings: &g.settings}
		twin := newLeaseWorld()
		g.randomPlay(rng, 200, func(w *leaseWorld, m move) {
			plain.play(&twin, m)
			if w.nodes != twin.nodes || w.calls != twin.calls || w.ledger != twin.ledger {
				t.Fatalf("seed %d: after %+v the world is %+v, by the plain store %+v", seed, m, *w, twin)
			}
		})
	}
}

// TestEveryLeaseRuleIsNeeded breaks one rule after the other; random games then hand out too much. The rules that
// they miss are those of TestLeasesByHand.
func TestEveryLeaseRuleIsNeeded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store storeFaults
		node  nodeFaults
	}{
		{name: "refilled over a slot's edge at once", store: storeFaults{lazy: true}},
		{name: "reports taken before the refill", store: storeFaults{reportsFirst: true}},
		{name: "one slot kept", store: storeFaults{oneSlot: true}},
		{name: "unused credited when its slot is forgotten", store: storeFaults{latecomers: true}},
		{name: "slots kept modulo 2", store: storeFaults{moduloTwo: true}},
		{name: "the key dies while a lease lives", store: storeFaults{mortal: true}},
		{name: "the deadline counts from the reply", node: nodeFaults{datedByReply: true}},
		{name: "used after a failed report", node: nodeFaults{revived: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range 20_000 {
				rng := newRand(seed)
				g := randomGame(t, rng)
				g.store, g.faults = &plainStore{&g.settings, tt.store}, tt.node
				if excess := g.randomPlay(rng, 200, nil); excess > 0 {
					t.Logf("seed %d: %d tokens too many of 40", seed, excess)
					return
				}
			}
			t.Error("nothing is handed out too much: the games do not see this rule broken")
		})
	}
}

// TestLeaseSearch plays every order of everything that may happen, in small games, up to the most worlds; by all
// rules none hands out too much, and with a rule broken some do.
func TestLeaseSearch(t *testing.T) {
	const hold = 1_200_000
	most := 100_000
	if !testing.Short() {
		most = 3_000_000
	}
	game := func(rate, ticks, holds int64, giveUps bool) *leaseGame {
		g := &leaseGame{
			settings: leasedBucketOf(t, rate, hold, 4, hold), wants: []int64{0, 4}, costs: []int64{0}, takes: []int64{0},
			calls: 3, giveUps: giveUps, horizon: leaseStart + holds*hold, tick: hold / ticks,
		}
		g.store = realStore{&g.settings}
		return g
	}
	for _, rate := range []int64{1, 8} {
		for _, ticks := range []int64{2, 3, 4} {
			for _, giveUps := range []bool{false, true} {
				if worlds, excess := game(rate, ticks, 4, giveUps).search(most, nil); excess > 0 {
					t.Errorf("rate %d, %d ticks a hold: %d too many in the %dth world", rate, ticks, excess, worlds)
				}
			}
		}
	}
	for name, f := range map[string]struct {
		store storeFaults
		node  nodeFaults
		game  *leaseGame
	}{
		"lazy":           {store: storeFaults{lazy: true}, game: game(1, 2, 5, true)},
		"reports first":  {store: storeFaults{reportsFirst: true}, game: game(8, 2, 4, true)},
		"one slot":       {store: storeFaults{oneSlot: true}, game: game(8, 2, 4, true)},
		"modulo 2":       {store: storeFaults{moduloTwo: true}, game: game(8, 2, 4, true)},
		"mortal":         {store: storeFaults{mortal: true}, game: game(8, 2, 4, true)},
		"dated by reply": {node: nodeFaults{datedByReply: true}, game: game(8, 2, 4, true)},
		"revived":        {node: nodeFaults{revived: true}, game: game(8, 2, 4, true)},
	} {
		f.game.store, f.game.faults = &plainStore{&f.game.settings, f.store}, f.node
		if worlds, excess := f.game.search(400_000, nil); excess == 0 {
			t.Errorf("%s: nothing too many in %d worlds", name, worlds)
		}
	}
}
