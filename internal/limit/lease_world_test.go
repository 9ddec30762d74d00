package limit_test

import (
	"github.com/tidegate/tidegate/internal/limit"
)

// leaseWorld is a few nodes that share one leased limit, at one moment: what the store knows, what the
// nodes hold, and the calls under way. It is a value, so that a search may go on from it in many ways, and
// remember where it has been. Times are in real µs; the store's clock is behind them by behind.
type leaseWorld struct {
	now, behind int64
	store       storeState
	nodes       [leaseNodes][2]nodeLease
	calls       [3]leaseCall
	begun, back int8 // calls begun, and steps back of the clock
	ledger      leaseLedger
}

const leaseNodes = 2

// storeState is a limit.State that can be compared.
type storeState struct {
	bucket limit.BucketState
	window limit.WindowState
	lease  limit.LeaseState
}

// nodeLease is what a node holds of a lease; the zero one is none.
type nodeLease struct {
	epoch, slot, left, used int64
	until                   int64 // from when on nothing is handed out
}

func (l *nodeLease) held() bool { return l.left+l.used > 0 }

// leaseCall is a call of the script.
type leaseCall struct {
	phase   phase
	awaited bool // the node has not given up yet
	node    int8
	sent    int64 // when the node read its clock
	cost    int64
	want    int64
	given   [2]nodeLease // those that it reports
	lent    limit.Lease
}

type phase uint8

const (
	idle     phase = iota
	onItsWay       // and not carried out yet
	answered       // carried out, and its reply is on the way
)

// nodeFaults are rules of a node's side, by number in docs/leases.md, that a test breaks.
type nodeFaults struct {
	datedByReply bool // 7: a lease is handed out until the hold after the reply
	noMargin     bool // 7: a lease is handed out for the whole hold
	sentTwice    bool // 5: what was reported in a call without an answer is reported again
	revived      bool // 6: what was reported in a call without an answer is handed out again
}

// leaseGame is what the moves of a world are made from.
type leaseGame struct {
	settings limit.Settings
	store    leaseStore
	faults   nodeFaults
	drift    [leaseNodes]int64 // a node's clock shows 100 + drift µs while 100 pass; -1 to 1

	wants, costs, takes []int64 // what calls want and cost, and how many tokens are handed out at once; 0 is all
	waits               []int64 // how long nothing happens, besides until the instants that matter
	steps               []int64 // of the clock back
	calls, back         int8    // at most
	giveUps, losses     bool    // calls may be given up, or lost
	horizon             int64   // when a search ends
	tick                int64   // things happen only at its multiples; 0: at any time
}

// leaseStore is the arithmetic of the store's side.
type leaseStore interface {
	takeBack(s *storeState, now int64, reports []limit.LeaseReport)
	charge(s *storeState, now, cost int64) (passes bool)
	lend(s *storeState, now, want int64) limit.Lease
}

// realStore is what the arithmetic of the package does.
type realStore struct{ settings *limit.Settings }

func (r realStore) with(s *storeState, do func(st *limit.State)) {
	st := limit.State{Bucket: s.bucket, Window: s.window, Lease: s.lease}
	do(&st)
	*s = storeState{st.Bucket, st.Window, st.Lease}
}

func (r realStore) takeBack(s *storeState, now int64, reports []limit.LeaseReport) {
	r.with(s, func(st *limit.State) {
		if next := *st; r.settings.TakeBack(&next, now, reports) {
			*st = next
		}
	})
}

func (r realStore) charge(s *storeState, now, cost int64) (passes bool) {
	r.with(s, func(st *limit.State) {
		next := *st
		wait, moved := r.settings.Decide(&next, now, cost)
		if passes = wait == 0; !passes {
			cost = 0
		}
		if cost > 0 || moved {
			r.settings.Charge(&next, now, cost, "")
			*st = next
		}
	})
	return passes
}

func (r realStore) lend(s *storeState, now, want int64) (lease limit.Lease) {
	r.with(s, func(st *limit.State) {
		next := *st
		changed := false
		if lease, changed = r.settings.Lend(&next, now, want); changed {
			*st = next
		}
	})
	return lease
}

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

// play makes a move.
func (g *leaseGame) play(w *leaseWorld, m move) {
	switch m.kind {
	case wait:
		w.now = m.a
	case setBack:
		w.behind += m.a
		w.back++
	case hand:
		l := &w.nodes[m.at][m.of]
		l.left -= m.a
		l.used += m.a
		w.ledger.hand(g, w, m.a)
	case ask, begin:
		g.begin(w, m)
	case execute:
		g.execute(w, &w.calls[m.at])
	case lose:
		w.calls[m.at].phase = answered // by an error
		g.fail(w, &w.calls[m.at])
	case giveUp:
		g.fail(w, &w.calls[m.at])
	case reply:
		g.answer(w, &w.calls[m.at])
	}
}

// begin sends a call: what it reports is given up first.
func (g *leaseGame) begin(w *leaseWorld, m move) {
	for i := range w.calls {
		c := &w.calls[i]
		if c.phase != idle {
			continue
		}
		*c = leaseCall{phase: onItsWay, awaited: true, node: m.at, sent: w.now, cost: m.a, want: m.b}
		if m.kind == begin {
			c.given, w.nodes[m.at] = w.nodes[m.at], c.given
		}
		w.begun++
		return
	}
}

func (g *leaseGame) execute(w *leaseWorld, c *leaseCall) {
	c.phase = answered
	clock := w.now - w.behind
	var reports []limit.LeaseReport
	for _, l := range c.given {
		if l.held() {
			reports = append(reports, limit.LeaseReport{Epoch: l.epoch, Slot: l.slot, Used: l.used, Unused: l.left})
		}
	}
	if len(reports) > 0 {
		g.store.takeBack(&w.store, clock, reports)
		w.ledger.see(&w.store.window)
	}
	if c.cost > 0 && g.store.charge(&w.store, clock, c.cost) {
		w.ledger.hand(g, w, c.cost)
	}
	if c.want > 0 {
		c.lent = g.store.lend(&w.store, clock, c.want)
		w.ledger.see(&w.store.window)
	}
	if !c.awaited {
		*c = leaseCall{}
	}
}

// fail ends a call without an answer. It may still be carried out.
func (g *leaseGame) fail(w *leaseWorld, c *leaseCall) {
	if c.awaited && (g.faults.revived || g.faults.sentTwice) {
		for _, l := range c.given {
			if g.faults.sentTwice {
				l.until = 0
			}
			w.keep(c.node, l)
		}
	}
	if c.awaited = false; c.phase == answered {
		*c = leaseCall{}
	}
}

// answer ends a call with its reply. A lease is handed out until 98 % of its time, by the node's clock.
func (g *leaseGame) answer(w *leaseWorld, c *leaseCall) {
	usable, from := c.lent.Usable.Microseconds(), c.sent
	if g.faults.noMargin {
		usable = usable * 100 / 98
	}
	if g.faults.datedByReply {
		from = w.now
	}
	if c.lent.Tokens > 0 {
		w.keep(c.node, nodeLease{
			epoch: c.lent.Epoch, slot: c.lent.Slot, left: c.lent.Tokens, until: from + usable*100/(100+g.drift[c.node]),
		})
	}
	*c = leaseCall{}
}

// keep gives a node a lease: in place of one that is over, if there is no room, or not at all.
func (w *leaseWorld) keep(node int8, l nodeLease) {
	if !l.held() {
		return
	}
	own := &w.nodes[node]
	for i := range own {
		if !own[i].held() {
			own[i] = l
			return
		}
	}
	for i := range own {
		if w.now >= own[i].until {
			own[i] = l
			return
		}
	}
}

// leaseLedger checks what is handed out against the strict limit. Of a bucket it is one that is filled by real
// time, from which every token handed out is taken: it is below 0 if and only if in some window of time
// more were handed out than its burst and what that time refills.
type leaseLedger struct {
	level, at   int64 // in 1/Micros of a token, less the full bucket; and when that was so
	serial, end int64 // of a window: its serial, and when it was last seen to end
	sum         int64 // what was handed out in it
	excess      int64 // the most that was handed out above the limit, rounded up
}

func (l *leaseLedger) hand(g *leaseGame, w *leaseWorld, n int64) {
	if g.settings.Algorithm == limit.FixedWindowAlgorithm {
		l.handInWindow(g, w, n)
		return
	}
	b := &g.settings.Bucket
	l.level = min(0, l.level+(w.now-l.at)*b.Tokens) - n*b.Micros
	l.at = w.now
	if over := -l.level - b.Burst*b.Micros; over > 0 {
		l.excess = max(l.excess, (over+b.Micros-1)/b.Micros)
	}
}

// handInWindow counts what is handed out in the window that is open; where none is, all is too much.
func (l *leaseLedger) handInWindow(g *leaseGame, w *leaseWorld, n int64) {
	open := &w.store.window
	if open.Serial == 0 || w.now-w.behind >= open.End {
		l.excess = max(l.excess, n)
		return
	}
	l.see(open)
	l.sum += n
	l.excess = max(l.excess, l.sum-g.settings.Window.Limit)
}

// see begins to count anew when another window is open: one of another serial, or, since the clock may have come
// back to the very µs, one that ends later than the last did.
func (l *leaseLedger) see(open *limit.WindowState) {
	if open.Serial != l.serial || open.End > l.end {
		l.serial, l.sum = open.Serial, 0
	}
	l.end = open.End
}
