package limit_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/limit"
)

// script is a game that is played by hand, from a slot's beginning on. Times are in ms since then.
type script struct {
	g *leaseGame
	w leaseWorld
	t *testing.T
}

func (s *script) at(ms int64) { s.g.play(&s.w, move{kind: wait, a: s.start() + ms*1000}) }

func (s *script) start() int64 {
	hold := s.g.settings.Hold
	return (leaseStart/hold + 1) * hold
}

// call is a call of a node that is carried out and answered at once; it reports what the node holds, if it is to.
func (s *script) call(node int8, report bool, cost, want int64) {
	kind := ask
	if report {
		kind = begin
	}
	s.g.play(&s.w, move{kind: kind, at: node, a: cost, b: want})
	s.g.play(&s.w, move{kind: execute, at: 0})
	s.g.play(&s.w, move{kind: reply, at: 0})
}

// lost is a call that reports what the node holds, and of which the reply is lost.
func (s *script) lost(node int8) {
	s.g.play(&s.w, move{kind: begin, at: node})
	s.g.play(&s.w, move{kind: execute, at: 0})
	s.g.play(&s.w, move{kind: giveUp, at: 0})
}

// hand hands out n tokens of what the node holds, which it may still do.
func (s *script) hand(node int8, n int64) {
	s.t.Helper()
	for i := range s.w.nodes[node] {
		if l := &s.w.nodes[node][i]; l.left >= n && s.w.now < l.until {
			s.g.play(&s.w, move{kind: hand, at: node, of: int8(i), a: n})
			return
		}
	}
	s.t.Fatalf("at %dms node %d does not hold %d: %+v", (s.w.now-s.start())/1000, node, n, s.w.nodes[node])
}

// TestLeasesByHand is one game for each rule whose breach random games do not see. By all rules nobody gets too
// much in it; with the rule broken somebody does.
func TestLeasesByHand(t *testing.T) {
	const second = 1_000_000
	type variant struct {
		store storeFaults
		node  nodeFaults
	}
	for _, tt := range []struct {
		name   string
		burst  int64
		rate   int64 // a second
		drift  int64
		broken variant
		play   func(s *script, broken bool)
	}{
		// A report of a forgotten slot must not lower the current one: node 1 holds that.
		{"late used lowers the current slot", 10, 10, 0, variant{store: storeFaults{lateUsed: true}}, func(s *script, _ bool) {
			s.call(0, false, 0, 10)
			s.hand(0, 10)
			s.at(2500)
			s.call(1, false, 0, 5)
			s.call(0, true, 0, 0)
			s.at(3479)
			s.call(0, false, 9, 0)
			s.hand(1, 5)
		}},
		// A node whose clock is 1 % slow hands out for 1 % longer, when its slot may be forgotten.
		{"no margin for slow clocks", 40, 400, -1, variant{node: nodeFaults{noMargin: true}}, func(s *script, broken bool) {
			s.at(999)
			s.call(0, false, 0, 40)
			if broken {
				s.at(2008)
				s.call(1, false, 3, 0)
			} else {
				s.at(1988)
			}
			s.hand(0, 40)
		}},
		// Both slots live on for a hold when the clock steps back, since the older one's leases may.
		{"slots kept apart when the clock steps back", 10, 10, 0, variant{store: storeFaults{slotsUnmerged: true}}, func(s *script, _ bool) {
			s.at(990)
			s.call(0, false, 0, 5)
			s.at(1010)
			s.call(1, false, 0, 5)
			s.g.play(&s.w, move{kind: setBack, a: 60_000})
			s.call(1, false, 1, 0) // which sees the step
			s.at(1960)
			s.call(1, false, 5, 0)
			s.hand(0, 5)
			s.hand(1, 5)
		}},
		// Of two slots with one number, before and after a step back, a report must name one.
		{"one epoch before and after a step back", 10, 10, 0, variant{store: storeFaults{sameEpoch: true}}, func(s *script, _ bool) {
			s.at(1010)
			s.call(0, false, 0, 5)
			s.g.play(&s.w, move{kind: setBack, a: 60_000})
			s.call(1, false, 1, 0) // which sees the step
			s.at(1950)             // slot 1 again, for the store
			s.call(1, false, 0, 4)
			s.call(0, true, 0, 0) // 5 unused, of the former slot 1
			s.at(2900)
			s.call(0, false, 10, 0)
			s.hand(1, 4)
		}},
		// A report of which the reply was lost counts as delivered: the second time it would free what another holds.
		{"reported twice", 10, 10, 0, variant{node: nodeFaults{sentTwice: true}}, func(s *script, _ bool) {
			s.call(0, false, 0, 5)
			s.call(1, false, 0, 5)
			s.lost(0)
			s.call(0, true, 0, 0)
			s.call(0, false, 10, 0)
			s.hand(1, 5)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, broken := range []bool{false, true} {
				g := &leaseGame{settings: leasedBucketOf(t, tt.rate, second, tt.burst, second), drift: [leaseNodes]int64{tt.drift, tt.drift}}
				plain := &plainStore{settings: &g.settings}
				g.store = realStore{&g.settings}
				if broken {
					plain.broken, g.faults = tt.broken.store, tt.broken.node
					g.store = plain
				}
				s := &script{g: g, w: newLeaseWorld(), t: t}
				s.at(0)
				tt.play(s, broken)
				if excess := s.w.ledger.excess; (excess > 0) != broken {
					t.Errorf("broken: %t, %d tokens too many", broken, excess)
				} else if broken {
					t.Logf("%d tokens too many of %d", excess, tt.burst)
				}
			}
		})
	}
}

// TestLeasedWindowsKeepTheBound plays the same random games on a fixed window: never more than its limit from its
// beginning to its end. With a rule of the node's side broken it is more.
func TestLeasedWindowsKeepTheBound(t *testing.T) {
	window, err := limit.NewFixedWindow(40, 3_000_000)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := window.Leased(1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	for name, faults := range map[string]nodeFaults{
		"by all rules": {}, "dated by the reply": {datedByReply: true}, "reported twice": {sentTwice: true}, "revived": {revived: true},
	} {
		t.Run(name, func(t *testing.T) {
			broken := faults != (nodeFaults{})
			var worst int64
			for seed := 0; seed < max(20_000, seeds()) && !(broken && worst > 0); seed++ {
				rng := newRand(seed)
				g := randomGame(t, rng)
				g.settings, g.faults = settings, faults
				worst = max(worst, g.randomPlay(rng, 200, nil))
			}
			if (worst > 0) != broken {
				t.Errorf("%d too many", worst)
			}
		})
	}
}
