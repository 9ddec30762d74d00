package local_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/limit"
	"github.com/tidegate/tidegate/internal/local"
)

// simulation is several nodes with a tier each on one shared limit. Its time is the shared
// store's, in ns; each node's clock runs a little differently.
type simulation struct {
	t       *testing.T
	rng     *rand.Rand
	limit   *limit.Limit
	state   limit.State
	now     int64
	behind  int64 // how far the store's clock was set back, in ns
	nodes   []simulatedNode
	events  eventHeap
	charged []limit.Payment // the latest, some of which are settled

	credits  bool  // something is given back now and then
	credited int64 // when it last was

	asked, calls, decided, granted, deniedLocally, late int
}

type simulatedNode struct {
	tier  *local.Tier
	ppm   int64 // how much faster than the store's its clock runs
	heard []heard
}

// heard is an answer that a node has taken over: the limit as it was then.
type heard struct {
	asOf  time.Time
	delay int64 // between the asking and the answer, in ns
	state limit.State
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
	from int64     // when the call began
	asOf time.Time // the same by the node's clock
	told limit.Verdict
	then limit.State // once the store has answered
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

// randomSettings draws settings of an algorithm that the tier denies from: windows from shortest µs to
// a month, limits from 1 to 1e12, often small.
func randomSettings(rng *rand.Rand, shortest float64) limit.Settings {
	for {
		most, span := 1+rng.Int64N(5), spread(rng, shortest, 3e12)
		if rng.IntN(2) == 0 {
			most = spread(rng, 1, 1e12)
		}
		var s limit.Settings
		var err error
		switch rng.IntN(8) {
		case 0:
			s = bucketOf(randomBucket(rng))
		case 1:
			s = bucketOf(randomBucket(rng))
			s.Algorithm = limit.LeakyBucketAlgorithm
			s.Bucket.Initial = s.Bucket.Burst
		case 2:
			s, err = limit.NewLeakyBucketLog(limit.Rate{Tokens: spread(rng, 1, 1000), Micros: spread(rng, 1, 86_400_000_000)}, most)
		case 3, 4:
			s, err = limit.NewSlidingWindowLog(most, span)
		case 5, 6:
			s, err = limit.NewSlidingWindow(most, span)
		default:
			s, err = limit.NewFixedWindow(most, span)
			if rng.IntN(3) == 0 {
				s, err = limit.NewCalendarWindow(most, limit.Period(1+rng.IntN(3)), zones[rng.IntN(len(zones))])
			}
		}
		if err == nil {
			return s
		}
	}
}

// zones has one that sets its clocks, and one that is no whole hours ahead.
var zones = []*time.Location{time.UTC, mustZone("Europe/Paris"), mustZone("Asia/Kathmandu")}

func mustZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return zone
}

func newSimulation(t *testing.T, rng *rand.Rand, settings limit.Settings, nodes int) *simulation {
	l := &limit.Limit{Name: "l", Settings: settings}
	s := &simulation{t: t, rng: rng, limit: l, credited: math.MinInt64 / 2}
	for range nodes {
		s.nodes = append(s.nodes, simulatedNode{tier: newTier(t, local.TierConfig{MaxKeys: 1}), ppm: rng.Int64N(1001) - 500})
	}
	return s
}

func (s *simulation) push(e *event) { heap.Push(&s.events, e) }

// micros is the time that the store's clock shows.
func (s *simulation) micros() int64 { return simulationStart.UnixMicro() + (s.now-s.behind)/1000 }

// answer lets the shared limit decide.
func (s *simulation) answer(cost int64) limit.Verdict {
	s.decided++
	id := strconv.Itoa(s.decided)
	v := answer(s.limit, &s.state, s.micros(), cost, id)
	if v.Allowed && cost > 0 {
		s.charged = append(s.charged, limit.Payment{Charged: cost, Mark: v.Mark, ID: id})
		s.charged = s.charged[max(0, len(s.charged)-8):]
	}
	return v
}

func (s *simulation) charge(cost int64) *limit.Charge {
	return &limit.Charge{Limit: s.limit, Settings: &s.limit.Settings, Key: key, Hash: hashOf(key), Cost: cost}
}

// step handles the next event. delay draws the time of one way.
func (s *simulation) step(delay func() int64) {
	e := heap.Pop(&s.events).(*event)
	s.now = e.at
	node := &s.nodes[e.node]
	switch c := s.charge(e.cost); e.kind {
	case arrival:
		s.asked++
		now := s.clock(e.node)
		if v, denied := deny(node.tier, now, c); denied {
			s.deniedLocally++
			s.check(e, v)
			return
		}
		s.calls++
		if underWay, _ := node.tier.Join(now, c, 0); underWay != nil {
			s.t.Fatal("a question waits although it has no time")
		}
		e.kind, e.from, e.asOf = decide, s.now, now
	case decide:
		e.kind, e.told = reply, s.answer(e.cost)
		e.then = s.state
		if e.told.Allowed {
			s.granted++
		}
	case reply:
		node.tier.Observe(e.asOf, c, &e.told)
		node.tier.Leave(c)
		node.hear(e)
		return
	}
	e.at = s.now + delay()
	s.push(e)
}

// hear keeps an answer that the tier takes over. What was known before is of no more use once this
// node has taken something.
func (n *simulatedNode) hear(e *event) {
	if last := len(n.heard) - 1; last >= 0 && e.asOf.Before(n.heard[last].asOf) {
		return
	}
	if e.told.Allowed && e.cost > 0 || len(n.heard) > 100 {
		n.heard = n.heard[:0]
	}
	n.heard = append(n.heard, heard{e.asOf, e.at - e.from, e.then})
}

// check fails the test when the store would grant at this instant what was denied, unless
// something came back within the last second of the node's clock; and when the verdict is not what the
// store would say.
func (s *simulation) check(e *event, v limit.Verdict) {
	before := s.state
	truth := s.answer(e.cost)
	s.state = before
	if v.Allowed || v.RetryAfter <= 0 || v.ResetAfter < v.RetryAfter {
		s.t.Fatalf("%+v: verdict %+v", s.limit.Settings, v)
	}
	if truth.Allowed {
		s.late++
		const second = 1_000_500_000 // of the slowest clock
		if s.now-s.credited > second {
			s.t.Fatalf("%+v: node %d at %dns: cost %d is denied (%+v), but the store has %d left; last credit %dns before",
				s.limit.Settings, e.node, s.now, e.cost, v, truth.Remaining, s.now-s.credited)
		}
	}
	if !s.credits && s.behind == 0 {
		s.checkWait(e, v)
	}
}

// checkWait fails the test when the verdict's wait is neither what the store would have said had nobody
// taken anything since one of the answers that the node has heard since it took something itself, nor
// the time until the limit is as if unused, by the newest of them. The tier takes it that its
// answers took no time, so its waits are short by their delay.
func (s *simulation) checkWait(e *event, v limit.Verdict) {
	now, clock := s.micros(), s.clock(e.node)
	for i := len(s.nodes[e.node].heard) - 1; i >= 0; i-- {
		h := s.nodes[e.node].heard[i]
		state := h.state
		wait, _ := s.limit.Settings.Decide(&state, now, e.cost)
		left, reset := s.limit.Settings.Report(&state, now)
		slack := time.Duration(h.delay) + clock.Sub(h.asOf)/1000 + 5*time.Microsecond
		near := func(got time.Duration, want int64) bool {
			return (got - time.Duration(want)*time.Microsecond).Abs() <= slack
		}
		newest := i == len(s.nodes[e.node].heard)-1
		if newest && (v.Remaining > left+int64(gainOf(&s.limit.Settings, slack))+max(1, s.limit.Settings.Bucket.Grain) || !near(v.ResetAfter, reset) && v.ResetAfter != v.RetryAfter) {
			s.t.Fatalf("%+v: cost %d: verdict %+v, want %d left and a reset after %dµs, within %v", s.limit.Settings, e.cost, v, left, reset, slack)
		}
		if near(v.RetryAfter, wait) || newest && near(v.RetryAfter, reset) {
			return
		}
	}
	s.t.Fatalf("%+v: cost %d: verdict %+v: no answer says so: %+v", s.limit.Settings, e.cost, v, s.nodes[e.node].heard)
}

// plan adds the next requests: at random, or around the very instant at which the shared limit
// will have the cost.
func (s *simulation) plan(scale float64) {
	most := s.limit.Settings.Capacity()
	cost := int64(1)
	if s.rng.IntN(2) == 0 {
		cost = spread(s.rng, 1, float64(most)+1)
	}
	next := s.state
	wait, _ := s.limit.Settings.Decide(&next, s.micros(), cost)
	left, _ := s.limit.Settings.Report(&next, s.micros())
	node := s.rng.IntN(len(s.nodes))
	if wait == 0 || s.rng.IntN(3) == 0 {
		if s.rng.IntN(2) == 0 {
			cost = min(most, max(1, left+s.rng.Int64N(3)-1))
		}
		s.push(&event{at: s.now + spread(s.rng, 1, scale), node: node, cost: cost})
		s.push(&event{at: s.now + spread(s.rng, 1, 1e9), node: node, cost: min(most, cost+s.rng.Int64N(2))})
		if s.rng.IntN(8) == 0 {
			s.push(&event{at: s.now + spread(s.rng, 1, scale), node: node}) // a peek
		}
		return
	}
	due := s.now/1000*1000 + wait*1000
	for range 1 + s.rng.IntN(3) {
		s.push(&event{at: max(s.now, due-spread(s.rng, 1, 1.1e9)), node: s.rng.IntN(len(s.nodes)), cost: cost})
	}
	for range 1 + s.rng.IntN(3) {
		s.push(&event{at: due + s.rng.Int64N(3), node: node, cost: cost})
	}
	s.push(&event{at: max(s.now, due-1-s.rng.Int64N(2000)), node: node, cost: cost})
	s.push(&event{at: max(s.now, due-1-s.rng.Int64N(2000)), node: node, cost: min(most, cost+s.rng.Int64N(2))})
}

// giveBack puts something back behind the nodes' backs.
func (s *simulation) giveBack() {
	if s.rng.IntN(3) == 0 {
		s.credited, s.state = s.now, limit.State{}
	} else if len(s.charged) > 0 {
		s.credited = s.now
		p := &s.charged[s.rng.IntN(len(s.charged))]
		s.settle(p, s.rng.Int64N(p.Charged+1))
	}
}

// settle makes of a charge another one. More than was charged may leave a debt.
func (s *simulation) settle(p *limit.Payment, actual int64) {
	p.Actual = actual
	next := s.state
	if changed, ok := s.limit.Settings.Settle(&next, s.micros(), p); changed && ok {
		s.state = next
	}
	p.Charged = p.Actual
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
		switch s.rng.IntN(40) {
		case 0, 1:
			if s.credits {
				s.giveBack()
			}
		case 2:
			if len(s.charged) > 0 {
				p := &s.charged[s.rng.IntN(len(s.charged))]
				s.settle(p, p.Charged+spread(s.rng, 1, float64(s.limit.Settings.Capacity())+1))
			}
		case 3:
			// Set back over the end of a calendar period, a clock ends that period twice.
			if s.limit.Settings.Window.Period == 0 && s.rng.IntN(10) == 0 {
				s.behind += spread(s.rng, 1, scale)
			}
		}
		s.step(delay)
	}
}
