package limit_test

import (
	"cmp"
	"hash/maphash"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// leaseSearch plays every order of all that may happen in a game whose tick is set, and remembers in which
// worlds it has been.
type leaseSearch struct {
	*leaseGame
	seed  maphash.Seed
	seen  map[uint64]struct{}
	stack []leaseWorld // worlds from which it has not gone on yet
}

// search plays all moves in every world that can be reached. It returns how many worlds there are, and the excess: of
// the first world in which there is some, where the search ends. It is not complete when there are more than most.
func (g *leaseGame) search(most int) (worlds int, excess int64, complete bool) {
	s := leaseSearch{leaseGame: g, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
	s.reach(newLeaseWorld())
	var room [64]move
	for len(s.stack) > 0 && len(s.seen) < most {
		w := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		for _, m := range g.moves(&w, room[:0]) {
			next := w
			g.play(&next, m)
			if s.reach(next); next.ledger.excess > 0 {
				return len(s.seen), next.ledger.excess, false
			}
		}
	}
	return len(s.seen), 0, len(s.stack) == 0
}

// reach keeps a world to go on from, unless it was there before.
func (s *leaseSearch) reach(w leaseWorld) {
	hash := s.hash(&w)
	if _, ok := s.seen[hash]; !ok {
		s.seen[hash] = struct{}{}
		s.stack = append(s.stack, w)
	}
}

// hash is the same for worlds in which the same may happen from now on. Which node is which makes no difference
// when their clocks are alike.
func (s *leaseSearch) hash(w *leaseWorld) uint64 {
	plain := s.plain(w)
	one := s.hashInOrder(&plain)
	if s.drift[0] != s.drift[1] {
		return one
	}
	plain.nodes[0], plain.nodes[1] = plain.nodes[1], plain.nodes[0]
	for i := range plain.calls {
		if c := &plain.calls[i]; c.phase != idle {
			c.node ^= 1
		}
	}
	return min(one, s.hashInOrder(&plain))
}

// plain returns a world without what makes no difference any more.
func (s *leaseSearch) plain(w *leaseWorld) leaseWorld {
	p := *w
	if s.settings.Algorithm == limit.TokenBucketAlgorithm {
		p.ledger.refill(s.leaseGame, p.now)
	}
	for i := range p.nodes {
		for j := range p.nodes[i] {
			if l := &p.nodes[i][j]; p.now >= l.until {
				l.until = 0
			}
		}
	}
	for i := range p.calls {
		c := &p.calls[i]
		if c.phase == answered {
			c.cost, c.want = 0, 0
			if !s.faults.sentTwice && !s.faults.revived {
				c.given = [2]nodeLease{}
			}
		}
		if !c.awaited || c.phase == answered && c.lent.Tokens == 0 {
			c.sent = 0
		}
	}
	return p
}

// hashInOrder hashes a world after it has brought its calls, and what each node holds, into one order.
func (s *leaseSearch) hashInOrder(w *leaseWorld) uint64 {
	for i := range w.nodes {
		slices.SortFunc(w.nodes[i][:], func(a, b nodeLease) int {
			return cmp.Compare(maphash.Comparable(s.seed, a), maphash.Comparable(s.seed, b))
		})
	}
	slices.SortFunc(w.calls[:], func(a, b leaseCall) int {
		return cmp.Compare(maphash.Comparable(s.seed, a), maphash.Comparable(s.seed, b))
	})
	return maphash.Comparable(s.seed, *w)
}

// smallHold is the hold of small games.
const smallHold = 1_200_000

// smallGame is two nodes with so many calls in all, on a bucket of 4 tokens that gains rate of them in a hold, for
// so many holds. Things happen at so many instants in each.
func smallGame(t *testing.T, calls int8, rate, ticks, holds int64, changes ...func(*leaseGame)) *leaseGame {
	g := &leaseGame{
		settings: leasedBucketOf(t, rate, smallHold, 4, smallHold), wants: []int64{0, 4}, costs: []int64{0}, takes: []int64{0},
		calls: calls, giveUps: true, horizon: leaseStart + holds*smallHold, tick: smallHold / ticks,
	}
	for _, change := range changes {
		change(g)
	}
	g.store = realStore{&g.settings}
	return g
}

// charged lets calls cost something themselves.
func charged(g *leaseGame) { g.costs = []int64{0, 3} }

// inParts lets leases be handed out in parts.
func inParts(g *leaseGame) { g.wants, g.takes = []int64{0, 3}, []int64{0, 1} }

// stepsBack lets the store's clock be set back once.
func stepsBack(g *leaseGame) { g.steps, g.back = []int64{g.tick, 2 * g.tick}, 1 }

// inWindow has the game be of a window of two holds.
func inWindow(t *testing.T) func(*leaseGame) {
	s := made(t)(made(t)(limit.NewFixedWindow(4, 2*smallHold)).Leased(smallHold))
	return func(g *leaseGame) { g.settings = s }
}

// TestLeaseSearch plays every order of everything that may happen in small games, to the end: by all rules, none
// hands out too much.
func TestLeaseSearch(t *testing.T) {
	window := inWindow(t)
	games := []*leaseGame{
		smallGame(t, 2, 1, 2, 4), smallGame(t, 2, 8, 3, 4), smallGame(t, 2, 8, 2, 3, charged),
		smallGame(t, 2, 8, 2, 4, stepsBack), smallGame(t, 2, 1, 2, 4, inParts), smallGame(t, 2, 8, 2, 4, window),
	}
	if !testing.Short() {
		for _, rate := range []int64{1, 8} {
			games = append(games,
				smallGame(t, 3, rate, 2, 4), smallGame(t, 3, rate, 3, 4), smallGame(t, 3, rate, 4, 4),
				smallGame(t, 2, rate, 4, 4, charged), smallGame(t, 2, rate, 4, 4, inParts), smallGame(t, 2, rate, 4, 4, stepsBack),
				smallGame(t, 3, rate, 2, 4, stepsBack), smallGame(t, 3, rate, 2, 4, window))
		}
	}
	for i, g := range games {
		worlds, excess, complete := g.search(6_000_000)
		t.Logf("game %d: %d worlds", i, worlds)
		if excess > 0 || !complete {
			t.Errorf("game %d: %d too many after %d worlds; complete: %t", i, excess, worlds, complete)
		}
	}
}

// TestLeaseSearchFindsBrokenRules: the same search finds too much handed out when a rule is broken. The rules that it
// lacks are seen broken by random games and by hand.
func TestLeaseSearchFindsBrokenRules(t *testing.T) {
	common := smallGame(t, 3, 8, 2, 4)
	for _, tt := range []struct {
		name  string
		store storeFaults
		node  nodeFaults
		game  *leaseGame
	}{
		{"refilled over a slot's edge at once", storeFaults{lazy: true}, nodeFaults{}, smallGame(t, 3, 1, 2, 5)},
		{"reports taken before the refill", storeFaults{reportsFirst: true}, nodeFaults{}, common},
		{"one slot kept", storeFaults{oneSlot: true}, nodeFaults{}, common},
		{"unused credited when its slot is forgotten", storeFaults{latecomers: true}, nodeFaults{}, smallGame(t, 4, 8, 2, 4)},
		{"slots kept modulo 2", storeFaults{moduloTwo: true}, nodeFaults{}, common},
		{"the key dies while a lease lives", storeFaults{mortal: true}, nodeFaults{}, common},
		{"one epoch before and after a step back", storeFaults{sameEpoch: true}, nodeFaults{}, smallGame(t, 4, 8, 2, 4, stepsBack)},
		{"the deadline counts from the reply", storeFaults{}, nodeFaults{datedByReply: true}, common},
		{"reported twice", storeFaults{}, nodeFaults{sentTwice: true}, smallGame(t, 4, 8, 2, 4)},
		{"used after a failed report", storeFaults{}, nodeFaults{revived: true}, common},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := *tt.game
			g.store, g.faults = &plainStore{&g.settings, tt.store}, tt.node
			worlds, excess, _ := g.search(1_000_000)
			if t.Logf("%d tokens too many of 4 in the %dth world", excess, worlds); excess == 0 {
				t.Errorf("nothing too many in %d worlds", worlds)
			}
		})
	}
}
