package limit_test

import "math/rand/v2"

// move is one thing that may happen.
type move struct {
	kind moveKind
	at   int8  // which node, or which call
	of   int8  // which of the node's leases
	a, b int64 // see the kinds
}

type moveKind uint8

const (
	wait    moveKind = iota // until a
	begin                   // node at calls for a, and wants b; it reports all leases
	ask                     // the same, but reports nothing
	execute                 // call at is carried out
	lose                    // call at is lost before it is carried out
	reply                   // the reply of call at arrives
	giveUp                  // the node of call at no longer waits for it
	hand                    // node at hands out a tokens of a lease
	setBack                 // the store's clock steps back by a
)

// moves appends all that may happen next.
func (g *leaseGame) moves(w *leaseWorld, dst []move) []move {
	for i := range w.nodes {
		dst = g.nodeMoves(w, int8(i), dst)
	}
	for i := range w.calls {
		c := &w.calls[i]
		switch c.phase {
		case onItsWay:
			dst = append(dst, move{kind: execute, at: int8(i)})
			if g.losses {
				dst = append(dst, move{kind: lose, at: int8(i)})
			}
		case answered:
			if c.awaited {
				dst = append(dst, move{kind: reply, at: int8(i)})
			}
		}
		if c.phase != idle && c.awaited && g.giveUps {
			dst = append(dst, move{kind: giveUp, at: int8(i)})
		}
	}
	for _, d := range g.steps {
		if w.back < g.back {
			dst = append(dst, move{kind: setBack, a: d})
		}
	}
	return g.waitMoves(w, dst)
}

// nodeMoves appends what node i may do: a node makes one call at a time, but may have given up others.
func (g *leaseGame) nodeMoves(w *leaseWorld, i int8, dst []move) []move {
	free, busy, holds := false, false, false
	for j := range w.calls {
		c := &w.calls[j]
		free = free || c.phase == idle
		busy = busy || c.phase != idle && c.awaited && c.node == i
	}
	for j := range w.nodes[i] {
		l := &w.nodes[i][j]
		holds = holds || l.held()
		if w.now >= l.until {
			continue
		}
		for _, n := range g.takes {
			if n == 0 {
				n = l.left
			}
			if n > 0 && n <= l.left {
				dst = append(dst, move{kind: hand, at: i, of: int8(j), a: n})
			}
		}
	}
	if !free || busy || w.begun >= g.calls {
		return dst
	}
	for _, want := range g.wants {
		for _, cost := range g.costs {
			if want+cost > 0 {
				dst = append(dst, move{kind: ask, at: i, a: cost, b: want})
			}
			if holds {
				dst = append(dst, move{kind: begin, at: i, a: cost, b: want})
			}
		}
	}
	return dst
}

// waitMoves appends the instants until which nothing may happen: those at which something changes, and the
// last ones before.
func (g *leaseGame) waitMoves(w *leaseWorld, dst []move) []move {
	add := func(at int64) {
		if at > w.now && at <= g.horizon {
			dst = append(dst, move{kind: wait, a: at})
		}
	}
	if g.tick > 0 {
		add(w.now + g.tick)
		return dst
	}
	hold := g.settings.Hold
	clock := w.now - w.behind
	edge := w.now + hold - clock%hold
	add(edge - 1)
	add(edge)
	for _, d := range g.waits {
		add(w.now + d)
	}
	for i := range w.nodes {
		for j := range w.nodes[i] {
			add(w.nodes[i][j].until - 1)
		}
	}
	return dst
}

// habits are how often each kind of move is made in a random game, when it can be.
type habits [setBack + 1]int

// randomHabits returns habits by which most calls are carried out and answered, in some games more of them than in
// others: where most get lost hardly anything is handed out.
func randomHabits(rng *rand.Rand) (h habits) {
	for kind := range h {
		h[kind] = 1 + rng.IntN(8)
	}
	h[begin], h[lose], h[giveUp], h[setBack] = rng.IntN(4), rng.IntN(3), rng.IntN(3), rng.IntN(2)
	return h
}

// next returns one of some moves: at first its kind is chosen, since there are many moves of some kinds.
func (h *habits) next(rng *rand.Rand, moves []move) move {
	var there [len(h)]int
	for i := range moves {
		there[moves[i].kind]++
	}
	var kinds [8 * len(h)]moveKind
	all := kinds[:0]
	for kind, n := range there {
		for range h[kind] * min(n, 1) {
			all = append(all, moveKind(kind))
		}
	}
	if len(all) == 0 {
		return moves[rng.IntN(len(moves))]
	}
	kind := all[rng.IntN(len(all))]
	n := rng.IntN(there[kind])
	for i := 0; ; i++ {
		if moves[i].kind != kind {
			continue
		}
		if n == 0 {
			return moves[i]
		}
		n--
	}
}
