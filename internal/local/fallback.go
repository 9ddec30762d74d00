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
	shares map[shareOf]limit.TokenBucket // guarded by memory.mu
}

type shareOf struct {
	bucket limit.TokenBucket
	nodes  int
}

// maxShares bounds the shares kept; the config and the node counts give far fewer.
const maxShares = 10_000

// NewFallback returns a Fallback that keeps its states in memory, and asks tier for what was last
// known and nodes for how many nodes share a limit.
func NewFallback(memory *Memory, tier *Tier, nodes func(*limit.Limit) int) *Fallback {
	return &Fallback{memory: memory, tier: tier, nodes: nodes, shares: map[shareOf]limit.TokenBucket{}}
}

// Decide decides requests in order, all or nothing each, and fills decisions. The verdicts carry
// the charges' own settings; what is left is of the share.
func (f *Fallback) Decide(requests []limit.Request, decisions []*limit.Decision) {
	m := f.memory
	for i := range requests {
		charges := make([]limit.Charge, len(requests[i].Charges))
		m.mu.Lock()
		wall := time.Now() // under the lock: a state must not see time go backwards and refill twice
		now := m.at(wall)
		for j := range requests[i].Charges {
			charges[j] = f.share(wall, &requests[i].Charges[j])
		}
		for j := range charges {
			f.cap(wall, now, &requests[i].Charges[j], &charges[j])
		}
		own := requests[i]
		own.Charges = charges
		m.decide(now, &own, decisions[i])
		m.mu.Unlock()
		decisions[i].Tier = limit.TierFallback
		for j := range decisions[i].Verdicts {
			decisions[i].Verdicts[j].Settings = requests[i].Charges[j].Settings
		}
	}
}

// share returns the charge on this node's share. The caller holds the memory's mu.
func (f *Fallback) share(wall time.Time, c *limit.Charge) limit.Charge {
	of := shareOf{bucket: c.Settings.Bucket, nodes: f.nodes(c.Limit)}
	bucket, ok := f.shares[of]
	if !ok {
		if len(f.shares) >= maxShares {
			clear(f.shares)
		}
		bucket = of.bucket.Share(int64(of.nodes))
		f.shares[of] = bucket
	}
	if tokens, _, ok := f.tier.Known(wall, c); ok {
		bucket.Initial = part(tokens, of.nodes)
	}
	share := *c
	share.Settings = &limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: bucket}
	return share
}

// cap lowers a stored share to its part of what an answer left that was asked for after the
// share's last change. The caller holds the memory's mu.
func (f *Fallback) cap(wall time.Time, now int64, whole, share *limit.Charge) {
	stored, ok := f.memory.states.Peek(share.Key)
	if !ok {
		return
	}
	_, asOf, known := f.tier.Known(wall, whole)
	if !known || f.memory.at(asOf) < stored.state.Bucket.At {
		return
	}
	bucket := &share.Settings.Bucket
	next, _, _ := bucket.Decide(stored.state.Bucket, now, 0)
	if next.Tokens > bucket.Initial {
		next.Tokens, next.Rem = bucket.Initial, 0
		f.memory.store(now, share, &step{stored: stored, next: limit.State{Bucket: bucket.Charge(next, 0)}})
	}
}

// part returns an n-th of tokens, rounded down.
func part(tokens int64, n int) int64 {
	by := int64(max(1, n))
	p := tokens / by
	if tokens%by < 0 {
		p--
	}
	return p
}

// Settle settles what Decide has charged to this node's share.
func (f *Fallback) Settle(ctx context.Context, s *limit.Settlement) (limit.Settled, error) {
	return f.memory.Settle(ctx, s)
}
