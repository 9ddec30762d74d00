package local_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// simulation is several nodes with a tier each on one shared bucket. Its time is the shared
// store's, in ns; each node's clock runs a little differently.
type simulation struct {
	t      *testing.T
	rng    *rand.Rand
	limit  *limit.Limit
	state  limit.BucketState
	now    int64
	nodes  []simulatedNode
	events eventHeap

	credits  bool  // tokens come back now and then
	credited int64 // when they last did

	asked, calls, granted, deniedLocally, late int
}

type simulatedNode struct {
	tier *local.Tier
	ppm  int64 // how much faster than the store's its clock runs
}

// simulationStart is in the future, so that the tier never sees an answer that took time by the
// real clock.
var simulationStart = time.Unix(4_000_000_000, 0)

// clock is the node's time.
func (s *simulation) clock(node int) time.Time {
	return simulationStart.Add(time.Duration(s.now + s.now/1_000_000*s.nodes[node].ppm + s.now%1_000_000*s.nodes[node].ppm/1_000_000))
}

type event struct {
	at   int64
	node int
	cost int64
	kind eventKind
	asOf time.Time // the call's
	told limit.Verdict
}

type eventKind int

const (
	arrival eventKind = iota // a request arrives at the node
	decide                   // its call arrives at the store
	reply                    // the store's answer arrives at the node
)

type eventHeap []*event

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h eventHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)        { *h = append(*h, x.(*event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

// spread draws a number between low and high, as likely small as large in order of magnitude.
func spread(rng *rand.Rand, low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + rng.Float64()*(math.Log(high)-math.Log(low))))
}

// randomBucket draws settings: rates from 1 a day to 1e9/s, bursts from 1 to 1e12, often 1, a
// quarter of them with a discrete refill.
func randomBucket(rng *rand.Rand) limit.TokenBucket {
	for {
		burst := int64(1)
		if rng.IntN(3) > 0 {
			burst = spread(rng, 1, 1e12)
		}
		initial := burst
		if rng.IntN(4) == 0 {
			initial = rng.Int64N(burst + 1)
		}
		var b limit.TokenBucket
		var err error
		if rng.IntN(4) == 0 {
			b, err = limit.NewDiscreteBucket(spread(rng, 1, float64(burst)+1), spread(rng, 1, 86_400_000_000), burst, initial)
		} else {
			rate := limit.Rate{Tokens: spread(rng, 1, 1000), Micros: spread(rng, 1, 86_400_000_000)}
			b, err = limit.NewTokenBucket(rate, burst, initial)
		}
		if err == nil {
			return b
		}
	}
}

func newSimulation(t *testing.T, rng *rand.Rand, b limit.TokenBucket, nodes int) *simulation {
	l := &limit.Limit{Name: "l", Settings: limit.Settings{Algorithm: limit.TokenBucketAlgorithm, Bucket: b}}
	s := &simulation{t: t, rng: rng, limit: l, credited: math.MinInt64 / 2}
	for range nodes {
		s.nodes = append(s.nodes, simulatedNode{tier: newTier(t, local.TierConfig{MaxKeys: 1}), ppm: rng.Int64N(1001) - 500})
	}
	return s
}

func (s *simulation) push(e *event) { heap.Push(&s.events, e) }

// micros is the store's time.
func (s *simulation) micros() int64 { return simulationStart.UnixMicro() + s.now/1000 }

// answer lets the shared bucket decide.
func (s *simulation) answer(cost int64) limit.Verdict {
	w := world{limit: s.limit, state: s.state, base: simulationStart}
	v := w.answer(time.Duration(s.now), cost)
	s.state = w.state
	return v
}

// step handles the next event. delay draws the time of one way.
func (s *simulation) step(delay func() int64) {
	e := heap.Pop(&s.events).(*event)
	s.now = e.at
	switch e.kind {
	case arrival:
		s.asked++
		now := s.clock(e.node)
		c := limit.Charge{Limit: s.limit, Settings: &s.limit.Settings, Key: key, Cost: e.cost}
		if v, denied := s.nodes[e.node].tier.Deny(now, &c); denied {
			s.deniedLocally++
			s.check(e, v)
			return
		}
		s.calls++
		e.kind, e.asOf = decide, now
	case decide:
		e.kind, e.told = reply, s.answer(e.cost)
		if e.told.Allowed {
			s.granted++
		}
	case reply:
		s.nodes[e.node].tier.Observe(e.asOf, &limit.Charge{Key: key}, &e.told)
		return
	}
	e.at = s.now + delay()
	s.push(e)
}

// check fails the test when the shared bucket would grant at this instant what was denied, unless
// tokens came back within the last second of the node's clock.
func (s *simulation) check(e *event, v limit.Verdict) {
	before := s.state
	truth := s.answer(e.cost)
	s.state = before
	if v.RetryAfter <= 0 || v.ResetAfter < v.RetryAfter && s.limit.Settings.Bucket.Burst >= e.cost {
		s.t.Fatalf("%+v: verdict %+v", s.limit.Settings.Bucket, v)
	}
	if !truth.Allowed {
		return
	}
	s.late++
	const second = 1_000_500_000 // of the slowest clock
	if s.now-s.credited > second {
		s.t.Fatalf("%+v: node %d at %dns: cost %d is denied (%+v), but the shared bucket holds %d; last credit %dns before",
			s.limit.Settings.Bucket, e.node, s.now, e.cost, v, truth.Remaining, s.now-s.credited)
	}
}

// plan adds the next requests: at random, or around the very instant at which the shared bucket
// will hold the cost.
func (s *simulation) plan(scale float64) {
	b := &s.limit.Settings.Bucket
	cost := int64(1)
	if s.rng.IntN(2) == 0 {
		cost = spread(s.rng, 1, float64(b.Burst)+1)
	}
	next, wait, _ := b.Decide(s.state, s.micros(), cost)
	node := s.rng.IntN(len(s.nodes))
	if wait == 0 || s.rng.IntN(3) == 0 {
		if s.rng.IntN(2) == 0 {
			cost = min(b.Burst, max(1, next.Tokens+s.rng.Int64N(3)-1))
		}
		s.push(&event{at: s.now + spread(s.rng, 1, scale), node: node, cost: cost})
		s.push(&event{at: s.now + spread(s.rng, 1, 1e9), node: node, cost: min(b.Burst, cost+s.rng.Int64N(2))})
		return
	}
	due := (s.micros() + wait - simulationStart.UnixMicro()) * 1000
	for range 1 + s.rng.IntN(3) {
		s.push(&event{at: max(s.now, due-spread(s.rng, 1, 1.1e9)), node: s.rng.IntN(len(s.nodes)), cost: cost})
	}
	for range 1 + s.rng.IntN(3) {
		s.push(&event{at: due + s.rng.Int64N(3), node: node, cost: cost})
	}
	s.push(&event{at: max(s.now, due-1-s.rng.Int64N(2000)), node: node, cost: cost})
}

// giveBack puts tokens back behind the nodes' backs.
func (s *simulation) giveBack() {
	s.credited = s.now
	if s.rng.IntN(3) == 0 {
		s.state = limit.BucketState{}
		return
	}
	b := &s.limit.Settings.Bucket
	next, _, _ := b.Decide(s.state, s.micros(), 0)
	if room := b.Burst - next.Tokens; room > 0 {
		s.state = b.Charge(next, -1-s.rng.Int64N(room))
	}
}

// run asks about steps requests; fewer when they would take longer than a Duration holds.
func (s *simulation) run(steps int) {
	scale := float64(spread(s.rng, 1e3, 2e9))
	longest := float64(spread(s.rng, 2e3, 60e6))
	delay := func() int64 { return spread(s.rng, 1, longest) - 1 }
	for s.asked < steps && s.now < math.MaxInt64/4 {
		for len(s.events) < 1+s.rng.IntN(4) {
			s.plan(scale)
		}
		if s.credits && s.rng.IntN(20) == 0 {
			s.giveBack()
		}
		s.step(delay)
	}
}

// simulate runs many simulations, and returns their sums.
func simulate(t *testing.T, credits bool) (sum simulation) {
	seed := uint64(time.Now().UnixNano())
	if testing.Short() {
		seed = 1
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	worlds := 20_000
	if testing.Short() {
		worlds = 400
	}
	for range worlds {
		s := newSimulation(t, rng, randomBucket(rng), 1+rng.IntN(5))
		s.credits = credits
		s.run(500)
		sum.asked, sum.calls, sum.deniedLocally, sum.late = sum.asked+s.asked, sum.calls+s.calls, sum.deniedLocally+s.deniedLocally, sum.late+s.late
	}
	t.Logf("%d requests, %d calls, %d local denials, %d of them late", sum.asked, sum.calls, sum.deniedLocally, sum.late)
	if sum.deniedLocally < sum.asked/10 {
		t.Errorf("only %d of %d requests were denied locally: the test sees too little", sum.deniedLocally, sum.asked)
	}
	return sum
}

func TestNoDenialIsFalse(t *testing.T) {
	if sum := simulate(t, false); sum.late > 0 {
		t.Errorf("%d denials were false", sum.late)
	}
}

func TestFalseDenialsEndWithinASecondOfTheCredit(t *testing.T) {
	if sum := simulate(t, true); sum.late == 0 {
		t.Error("no denial was late: the test sees too little")
	}
}

func TestCallsPerDenial(t *testing.T) {
	tests := []struct {
		name     string
		bucket   limit.TokenBucket
		perToken float64 // requests over all nodes for each token
		most     float64 // calls per denied request
	}{
		{"10 times overload, 10/s", even(t, 10, 1_000_000, 10), 10, 0.55},
		{"10 times overload, burst 1", even(t, 10, 1_000_000, 1), 10, 0.55},
		{"10 times overload, 1000/s", even(t, 1, 1000, 1000), 10, 0.9},
		{"10 times overload, 10 each second", discrete(t, 10, time.Second, 10), 10, 0.2},
		{"500 times overload, 10/s", even(t, 10, 1_000_000, 10), 500, 0.02},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			s, alone := newSimulation(t, rng, tt.bucket, 5), newSimulation(t, rng, tt.bucket, 0)
			gap := float64(tt.bucket.Micros) / float64(tt.bucket.Tokens*tt.bucket.Grain) / tt.perToken * 1000
			const requests = 50_000
			at := 0.0
			for range requests {
				at += rng.ExpFloat64() * gap
				s.push(&event{at: int64(at), node: rng.IntN(5), cost: 1})
				alone.now = int64(at)
				if alone.answer(1).Allowed {
					alone.granted++
				}
			}
			for len(s.events) > 0 {
				s.step(func() int64 { return 100_000 + rng.Int64N(100_000) })
			}
			perDenied, share := float64(s.calls)/float64(requests-s.granted), float64(s.granted)/float64(alone.granted)
			t.Logf("%.3f calls per denied request, %.1f per token; %.4f of what the bucket alone grants", perDenied, float64(s.calls)/float64(s.granted), share)
			if perDenied > tt.most {
				t.Errorf("%.3f calls per denied request, want at most %.2f", perDenied, tt.most)
			}
			if share < 0.98 {
				t.Errorf("%.4f of what the bucket alone grants", share)
			}
		})
	}
}
