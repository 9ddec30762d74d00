package limit_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// uncertain returns how many tokens may still be handed out from leases, or given back by a report that
// would be taken: what docs/leases.md calls U.
func (g *leaseGame) uncertain(w *leaseWorld, now limit.LeaseState) int64 {
	known := func(epoch, slot int64) bool { return epoch == now.Epoch && (slot == now.Slot || slot == now.Slot-1) }
	var u int64
	for i := range w.nodes {
		for _, l := range w.nodes[i] {
			if w.now < l.until || known(l.epoch, l.slot) {
				u += l.left
			}
		}
	}
	for i := range w.calls {
		c := &w.calls[i]
		for _, l := range c.given {
			if c.phase == onItsWay && known(l.epoch, l.slot) {
				u += l.left
			}
		}
		until := c.sent + c.lent.Usable.Microseconds()*100/(100+g.drift[c.node])
		if c.phase == answered && c.awaited && w.now < until {
			u += c.lent.Tokens
		}
	}
	return u
}

// knows reports whether some node still knows a lease of a state that began at a time of the store's clock. When the
// clock is set back to that very µs, and a state begins anew in it, its epoch tells nobody apart; docs/leases.md says so.
func (w *leaseWorld) knows(epoch int64) bool {
	known := func(all [2]nodeLease) bool {
		return all[0].epoch == epoch || all[1].epoch == epoch
	}
	for i := range w.calls {
		if c := &w.calls[i]; known(c.given) || c.lent.Epoch == epoch {
			return true
		}
	}
	return known(w.nodes[0]) || known(w.nodes[1])
}

// TestLeasedTokensAreCounted plays random games by all rules, in which limits are also forgotten, and charges
// are given back or grow. The tokens of which nobody knows yet what becomes of them are never more than those
// that the store counts as out, and these and what is left never more than the limit: that is the whole argument.
func TestLeasedTokensAreCounted(t *testing.T) {
	window := made(t)(limit.NewFixedWindow(40, 3_000_000))
	for seed := range seeds() {
		rng := newRand(seed)
		g := randomGame(t, rng)
		if seed%3 == 0 {
			g.settings = made(t)(window.Leased(1_000_000))
		}
		store := realStore{&g.settings}
		g.store = store
		recurs := false
		g.randomPlay(rng, 200, func(w *leaseWorld, m move) {
			clock := w.now - w.behind
			if recurs = recurs || w.behind > 0 && w.knows(clock); recurs {
				return
			}
			if rng.IntN(8) == 0 {
				store.meddle(rng, &w.store, clock)
			}
			state := w.store
			store.with(&state, func(st *limit.State) {
				g.settings.Decide(st, clock, 0)
				left, _ := g.settings.Report(st, clock)
				out := g.settings.Out(st)
				if u := g.uncertain(w, st.Lease); u > out || left+out > g.settings.Capacity() {
					t.Fatalf("seed %d, after %+v: %d tokens are uncertain, %d count as out, %d are left of %d\n%+v",
						seed, m, u, out, left, g.settings.Capacity(), *w)
				}
			})
		})
	}
}

// meddle forgets the limit, or settles something of which all that is known is what it cost.
func (r realStore) meddle(rng *rand.Rand, s *storeState, now int64) {
	r.with(s, func(st *limit.State) {
		if rng.IntN(4) == 0 {
			if !r.settings.Forget(st, now) {
				*st = limit.State{}
			}
			return
		}
		p := limit.Payment{Charged: rng.Int64N(40), Actual: rng.Int64N(40), Mark: st.Window.Serial}
		next := *st
		if changed, ok := r.settings.Settle(&next, now, &p); changed && ok {
			*st = next
		}
	})
}
