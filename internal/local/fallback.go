package local

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
)

// Fallback decides with this node's share of each limit while the shared store is away. A share
// begins at its part of what was last known to be left, and what an answer said since then still
// lowers it; what was taken from it in an earlier outage stays taken. Safe for concurrent use.
type Fallback struct {
	memory *Memory
	tier   *Tier
	nodes  func(*limit.Limit) int
	shares map[shareOf]*limit.Settings // guarded by memory.mu
	limits map[string]*limit.Limit     // as they were last asked about, by name; guarded by memory.mu
}

type shareOf struct {
	settings limit.Settings
	nodes    int
}

// maxShares bounds the shares kept, and the limits; the config and the node counts give far fewer.
const maxShares = 10_000

// NewFallback returns a Fallback that keeps its states in memory, and asks tier for what was last
// known and nodes for how many nodes share a limit.
func NewFallback(memory *Memory, tier *Tier, nodes func(*limit.Limit) int) *Fallback {
	return &Fallback{
		memory: memory, tier: tier, nodes: nodes,
		shares: map[shareOf]*limit.Settings{}, limits: map[string]*limit.Limit{},
	}
}

// Decide decides requests in order, all or nothing each, and fills decisions. The verdicts carry
// the charges' own settings; what is left is of the share.
func (f *Fallback) Decide(requests []limit.Request, decisions []*limit.Decision) {
	m := f.memory
	for i := range requests {
		own := requests[i]
		own.Charges = make([]limit.Charge, len(requests[i].Charges))
		m.mu.Lock()
		wall := time.Now() // under the lock: a state must not see time go backwards and refill twice
		now := m.at(wall)
		for j := range requests[i].Charges {
			whole := &requests[i].Charges[j]
			f.know(whole.Limit)
			nodes := f.nodes(whole.Limit)
			own.Charges[j] = f.share(whole, nodes)
			f.hear(wall, now, whole, &own.Charges[j], nodes)
		}
		m.decide(now, &own, decisions[i])
		m.mu.Unlock()
		decisions[i].Tier = limit.TierFallback
		restore(decisions[i].Verdicts, requests[i].Charges)
	}
}

// restore gives the verdicts on shares the settings that the charges had.
func restore(verdicts []limit.Verdict, charges []limit.Charge) {
	for i := range verdicts {
		verdicts[i].Settings = charges[i].Settings
	}
}

// know keeps l for settling: a ticket's limits have no more than its name. The caller holds the
// memory's mu.
func (f *Fallback) know(l *limit.Limit) {
	if f.limits[l.Name] == l {
		return
	}
	if len(f.limits) >= maxShares {
		clear(f.limits)
	}
	f.limits[l.Name] = l
}

// share returns the charge on the share of one of so many nodes. The caller holds the memory's mu.
func (f *Fallback) share(c *limit.Charge, nodes int) limit.Charge {
	of := shareOf{settings: *c.Settings, nodes: nodes}
	settings, ok := f.shares[of]
	if !ok {
		if len(f.shares) >= maxShares {
			clear(f.shares)
		}
		own := of.settings.Share(int64(nodes))
		settings = &own
		f.shares[of] = settings
	}
	share := *c
	share.Settings = settings
	return share
}

// hear lets a share take the newest answer into account, once: one that is not in use begins with its
// part of what that leaves, one that is in use is lowered to it. It never gains anything by an answer.
// The caller holds the memory's mu.
func (f *Fallback) hear(wall time.Time, now int64, whole, share *limit.Charge, nodes int) {
	known, ok := f.tier.Known(wall, whole)
	if !ok {
		return
	}
	left := part(known.Left, nodes)
	stored, ok := f.memory.states.Peek(share.Key)
	var next limit.State
	switch inUse := ok && now < stored.until; {
	case inUse && stored.heard == known.Answer:
		return
	case inUse:
		next = stored.state
		lower(share.Settings, &next, now, left, known.Reset)
	default:
		share.Settings.Decide(&next, now, 0)
		if unused, _ := share.Settings.Report(&next, now); unused == left {
			return
		}
		next = share.Settings.Seed(now, left, known.Reset)
	}
	f.memory.store(now, share, &step{stored: stored, next: next})
	if kept, ok := f.memory.states.Peek(share.Key); ok {
		kept.heard = known.Answer
	}
}

// lower charges the state of a share with what it has more than left, which keeps what was charged
// before to be settled. A fixed window lasts until the known one is over: else what is left until then
// would be had twice.
func lower(share *limit.Settings, s *limit.State, now, left, reset int64) {
	share.Decide(s, now, 0)
	have, _ := share.Report(s, now)
	surplus := max(0, have-left)
	if share.Algorithm == limit.ConcurrencyAlgorithm {
		for range surplus {
			share.Charge(s, now, 1, "")
		}
	} else {
		share.Charge(s, now, surplus, "")
	}
	if share.Algorithm == limit.FixedWindowAlgorithm {
		s.Window.End = max(s.Window.End, now+reset)
	}
}

// part returns an n-th of what is left, rounded down.
func part(left int64, n int) int64 {
	by := int64(max(1, n))
	p := left / by
	if left%by < 0 {
		p--
	}
	return p
}

// Settle settles what Decide has charged to this node's share, under the share's settings as they are
// now. The errors are those of Memory.Settle; the verdicts name the ticket's own settings.
func (f *Fallback) Settle(_ context.Context, s *limit.Settlement) (limit.Settled, error) {
	m := f.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	ticket, own := *s.Ticket, *s
	own.Ticket = &ticket
	ticket.Charges = make([]limit.Charge, len(s.Ticket.Charges))
	for i := range ticket.Charges {
		c := &s.Ticket.Charges[i]
		l := c.Limit
		if asked, ok := f.limits[l.Name]; ok {
			l = asked
		}
		ticket.Charges[i] = f.share(c, f.nodes(l))
	}
	answer, err := m.settle(m.now(), &own)
	restore(answer.Verdicts, s.Ticket.Charges)
	return answer, err
}
