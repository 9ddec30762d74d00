package limit_test

import "github.com/tidegate/tidegate/internal/limit"

// leaseLedger checks what is handed out against the strict limit. Of a bucket it is one that is filled by real
// time, from which every token handed out is taken: it is below 0 if and only if in some window of time
// more were handed out than its burst and what that time refills. A discrete refill may come just within the
// window that has lasted nearly as long outside of it: all but one token of it more.
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
	l.refill(g, w.now)
	l.level -= n * b.Micros
	if over := -l.level - (b.Burst+b.Grain-1)*b.Micros; over > 0 {
		l.excess = max(l.excess, (over+b.Micros-1)/b.Micros)
	}
}

// refill brings the ledger of a bucket to a time.
func (l *leaseLedger) refill(g *leaseGame, at int64) {
	b := &g.settings.Bucket
	l.level = min(0, l.level+(at-l.at)*b.Tokens*b.Grain)
	l.at = at
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
