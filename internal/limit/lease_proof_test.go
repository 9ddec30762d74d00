package limit_test

import (
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

// leasedDiscrete returns a bucket of 40 tokens that gains tokens at once every interval, and is leased for a second.
func leasedDiscrete(t testing.TB, tokens, interval int64) limit.Settings {
	t.Helper()
	b, err := limit.NewDiscreteBucket(tokens, interval, 40, 40)
	if err != nil {
		t.Fatal(err)
	}
	s, err := limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}.Leased(1_000_000)
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
	w, habits := newLeaseWorld(), randomHabits(rng)
	var room [64]move
	for range moves {
		all := g.moves(&w, room[:0])
		if len(all) == 0 {
			break
		}
		m := habits.next(rng, all)
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
// time more is handed out than the burst and what that time refills; at times all of it is. The bucket refills
// evenly, or several tokens at once.
func TestLeasesKeepTheBound(t *testing.T) {
	for name, discrete := range map[string]bool{"evenly": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			handed, full := int64(0), 0
			for seed := range seeds() {
				rng := newRand(seed)
				g := randomGame(t, rng)
				if discrete {
					g.settings = leasedDiscrete(t, 2+rng.Int64N(9), spread(rng, 10_000, 3_000_000))
				}
				isFull := false
				excess := g.randomPlay(rng, 200, func(w *leaseWorld, m move) {
					if m.kind == hand {
						handed += m.a
					}
					isFull = isFull || w.ledger.level <= -(g.settings.Bucket.Burst-1)*g.settings.Bucket.Micros
				})
				if excess > 0 {
					t.Fatalf("seed %d: %d tokens too many", seed, excess)
				}
				if isFull {
					full++
				}
			}
			t.Logf("%d tokens were handed out from leases; in %d games of %d nearly all that may be was", handed, full, seeds())
			if handed < int64(seeds()) || full < seeds()/10 {
				t.Error("the games hardly come near the bound")
			}
		})
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
// they hardly see are those of TestLeasesByHand. The long form plays on, to see how much it is at worst.
func TestEveryLeaseRuleIsNeeded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store storeFaults
		node  nodeFaults
	}{
		{name: "refilled over a slot's edge at once", store: storeFaults{lazy: true}},
		{name: "reports taken before the refill", store: storeFaults{reportsFirst: true}},
		{name: "one slot kept", store: storeFaults{oneSlot: true}},
		{name: "the deadline counts from the reply", node: nodeFaults{datedByReply: true}},
		{name: "unused credited when its slot is forgotten", store: storeFaults{latecomers: true}},
		{name: "reported twice", node: nodeFaults{sentTwice: true}},
		{name: "slots kept modulo 2", store: storeFaults{moduloTwo: true}},
		{name: "late used lowers the current slot", store: storeFaults{lateUsed: true}},
		{name: "used after a failed report", node: nodeFaults{revived: true}},
		{name: "the key dies while a lease lives", store: storeFaults{mortal: true}},
		{name: "no margin for slow clocks", node: nodeFaults{noMargin: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			worst, games := int64(0), 0
			for seed := range 100_000 {
				rng := newRand(seed)
				g := randomGame(t, rng)
				g.store, g.faults = &plainStore{&g.settings, tt.store}, tt.node
				if excess := g.randomPlay(rng, 200, nil); excess > 0 {
					worst, games = max(worst, excess), games+1
				}
				if worst > 0 && testing.Short() {
					break
				}
			}
			if t.Logf("%d tokens too many of 40 at worst, in %d games", worst, games); worst == 0 {
				t.Error("nothing is handed out too much: the games do not see this rule broken")
			}
		})
	}
}
