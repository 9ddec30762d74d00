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
